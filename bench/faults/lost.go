package faults

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"berth/api/wire"
	"berth/attempt"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/compute"
)

// Move is an attempt whose code had begun and that was lost, with the one that
// was begun in its place.
type Move struct {
	Execution string `json:"execution"`
	Node      string `json:"node"`
	Nemesis   string `json:"nemesis"` // That hit the node; "none" for nothing.
	Reason    string `json:"reason"`  // As which it was lost.
	// After is how long it was from the fault until the code began anew, 0
	// where there was no fault, or it had to wait for its node.
	After float64 `json:"after_s"`
	// Waited is how much of that it was queued, by the cluster's clock: next to
	// nothing unless others had the GPUs; nil where that is not known, as in runs
	// before 2026-11-22 23:30 UTC.
	Waited *float64 `json:"waited_s,omitempty"`
}

// byLease reports whether the attempt ended because its node was not heard.
func (m *Move) byLease() bool { return m.Reason == compute.ReasonNodeLost.String() }

// Limits of what becomes of lost attempts.
const (
	// moveLimit is how long it may take from the loss of a node until its code
	// begins anew elsewhere: the 25 s until the leader gives it up, a pass of the
	// scheduler, the start, and what a loaded machine and a short queue add.
	moveLimit = 45 * time.Second
	// reportLimit is how long a node may take to write down how code ended, and
	// to report it when nothing keeps it from that.
	reportLimit = 5 * time.Second
	// beatSlack is how much earlier than its end code may have given its last
	// sign.
	beatSlack = time.Second
	// roomAtOnce is what finds room is queued for less than: some passes.
	roomAtOnce = time.Second
)

// past is what the code of an execution and the cluster say of it. The times of
// its marks are the run's.
type past struct {
	id       string
	status   compute.Status
	stopped  bool // By a client, or nobody knows.
	bound    bool // It has to wait for the node that it was on.
	marks    map[uint64]check.Mark
	attempts []wire.Attempt // Oldest first.
}

// checkLost looks at every execution of which an attempt was lost: how long it
// took until it began anew, and whether code had come to its end and the
// cluster does not know.
func (s *session) checkLost(ctx context.Context, marks []check.Mark, report *Report) ([]check.Violation, error) {
	pasts, err := s.pasts(ctx, marks)
	if err != nil {
		return nil, err
	}
	j := lossJudge{faults: report.Faults, slow: int64(max(s.cfg.Slow, 1)), closing: s.closing}
	var wrong []check.Violation
	for i := range pasts {
		moves, late := j.moves(&pasts[i])
		report.Moves = append(report.Moves, moves...)
		wrong = append(append(wrong, late...), j.lostResults(&pasts[i])...)
	}
	return wrong, nil
}

// pasts returns what is known of every execution of which an attempt was lost.
func (s *session) pasts(ctx context.Context, marks []check.Mark) ([]past, error) {
	byExecution := map[string]map[uint64]check.Mark{}
	for _, m := range marks {
		if byExecution[m.Execution] == nil {
			byExecution[m.Execution] = map[uint64]check.Mark{}
		}
		m.From, m.To = m.From-s.boot, m.To-s.boot
		byExecution[m.Execution][m.Attempt] = m
	}
	var all []past
	for _, o := range s.orgs {
		c := s.admin.WithToken(o.key)
		for _, e := range s.books[o.slug].executions {
			own := byExecution[e.ExecutionID.String()]
			if len(own) == 0 || e.Retries == 0 && e.Status != compute.StatusSystemFailure && len(own) == 1 {
				continue
			}
			whole, err := c.Execution(ctx, e.ExecutionID, 0)
			if err != nil {
				return nil, stuck{fmt.Errorf("read execution %s: %w", e.ExecutionID, err)}
			}
			ours := e.Metadata != nil && slices.Contains(e.Metadata.Tags, markedTag)
			all = append(all, past{
				id: e.ExecutionID.String(), status: e.Status, stopped: !ours || s.stopped[e.ExecutionID],
				bound: world.OnOneNode(e.HardwareProfile), marks: own, attempts: whole.Attempts,
			})
		}
	}
	slices.SortFunc(all, func(a, b past) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// lossJudge judges losses by the faults of a run.
type lossJudge struct {
	faults  []Fault
	slow    int64 // Limits are so many times as long.
	closing int64
}

// grown returns a limit as nanoseconds of the run.
func (j *lossJudge) grown(limit time.Duration) int64 { return int64(limit) * j.slow }

// moves returns which attempts of an execution were lost and followed by
// another one, and what took too long.
func (j *lossJudge) moves(p *past) (moves []Move, wrong []check.Violation) {
	for i, a := range p.attempts {
		m, began := p.marks[a.Attempt]
		if !began || a.Status != compute.StatusSystemFailure.String() {
			continue
		}
		move := Move{Execution: p.id, Node: a.Node, Nemesis: noNemesis}
		if a.Reason != nil {
			move.Reason = *a.Reason
		}
		f := j.cause(a.Node, m.To)
		if f != nil {
			move.Nemesis = f.Nemesis
		}
		next, waited, again := p.beganAfter(i)
		if again {
			if f != nil && !p.bound {
				move.After, move.Waited = time.Duration(next-f.from).Seconds(), waited
			}
			moves = append(moves, move)
		} else if next = j.closing; p.stopped || p.status == compute.StatusSystemFailure {
			continue // It was not to begin anew, or may not.
		}
		limit := j.grown(moveLimit)
		if f == nil || p.bound || !j.alone(f, min(next, f.from+limit)) || next-f.from <= limit {
			continue
		}
		wrong = append(wrong, check.Violation{What: "late move", Object: "execution " + p.id, Detail: fmt.Sprintf(
			"attempt %d on %s was lost with %s; its code did not begin anew within %v (began: %v, %v after the fault)",
			a.Attempt, a.Node, f.Nemesis, time.Duration(limit), again, time.Duration(next-f.from).Round(time.Millisecond))})
	}
	return moves, wrong
}

// beganAfter returns when code of an attempt after the i-th began, and for how
// many seconds the execution was queued in between; nil where nobody knows.
func (p *past) beganAfter(i int) (at int64, waited *float64, began bool) {
	waited = new(0.0)
	for ; i+1 < len(p.attempts); i++ {
		before, next := &p.attempts[i], &p.attempts[i+1]
		switch {
		case before.EndedAt == nil:
			waited = nil
		case waited != nil:
			*waited += max(next.PlacedAt.Sub(*before.EndedAt), 0).Seconds()
		}
		if m, began := p.marks[next.Attempt]; began {
			return m.From, waited, true
		}
	}
	return 0, nil, false
}

// cause returns the newest fault that hit a node before or when its code gave
// its last sign, and was not over for long; nil for none.
func (j *lossJudge) cause(node string, last int64) *Fault {
	for i := len(j.faults) - 1; i >= 0; i-- {
		f := &j.faults[i]
		if f.hit(node) && f.from <= last+int64(beatSlack) && f.until()+j.grown(reportLimit) >= last {
			return f
		}
	}
	return nil
}

// alone reports whether a fault hit one node, and nothing else was broken
// until an instant: then nothing but that node's loss held its work up.
func (j *lossJudge) alone(f *Fault, until int64) bool {
	return len(f.On) == 1 && !slices.ContainsFunc(j.faults, func(o Fault) bool {
		return o.Nemesis != calmNemesis && o.from > f.from && o.from < until
	})
}

// lostResults returns which code came to its end without that the cluster knows
// it, and without a fault that may have taken the word of it away.
func (j *lossJudge) lostResults(p *past) []check.Violation {
	var wrong []check.Violation
	for _, a := range p.attempts {
		m := p.marks[a.Attempt]
		if !m.Ended || a.Status != compute.StatusSystemFailure.String() || j.excused(a.Node, m.To) {
			continue
		}
		reason := ""
		if a.Reason != nil {
			reason = *a.Reason
		}
		wrong = append(wrong, check.Violation{What: "lost result", Object: "execution " + p.id, Detail: fmt.Sprintf(
			"the code of attempt %d on %s came to its end %.1f s after the run began, and the attempt is a %s (%s)",
			a.Attempt, a.Node, time.Duration(m.To).Seconds(), a.Status, reason)})
	}
	return wrong
}

// excused reports whether the word of code that came to its end on a node may
// be lost: what watched it or the disk was broken before it was written down,
// or the node was away for longer than a lease before it could be reported. A
// node that is killed, stands still or is cut off for less owes the word.
func (j *lossJudge) excused(node string, ended int64) bool {
	from, written := ended-int64(beatSlack), ended+j.grown(reportLimit)
	reported := written
	for i := range j.faults {
		if f := &j.faults[i]; f.from <= ended && f.until() > ended && f.until() < math.MaxInt64 {
			reported = max(reported, f.until()+j.grown(reportLimit)) // It may have had to wait.
		}
	}
	return slices.ContainsFunc(j.faults, func(f Fault) bool {
		if !f.hit(node) || f.until() < from {
			return false
		}
		return slices.Contains(lossy(), f.Nemesis) && f.from <= written ||
			f.until()-f.from > int64(attempt.Lease) && f.from <= reported
	})
}

// lossy returns what may take the word of code's end away however short it is.
func lossy() []string {
	return []string{
		"supervisor-kill", "machine-crash", "long-crash", "out-of-memory", "failpoint",
		"power-cut", "damaged-file", "leader-failing-disk", "follower-failing-disk", "full-disk", "full-disks",
	}
}

// hit reports whether the fault broke a node, or may have.
func (f *Fault) hit(node string) bool {
	return f.Nemesis != calmNemesis && (len(f.On) == 0 || slices.Contains(f.On, node))
}

// until returns when the cluster was whole again after the fault.
func (f *Fault) until() int64 {
	if f.over == 0 {
		return math.MaxInt64
	}
	return f.over
}

// Moved are sums of what began anew after its attempt was lost.
type Moved struct {
	Leases int `json:"leases"` // Because a lease had ended; the times are theirs.
	Others int `json:"others"`
	// Runs had a fault that outlasts a lease; Without are those of them in which
	// none ended.
	Runs    int `json:"runs"`
	Without int `json:"without"`

	P50 time.Duration `json:"p50_ns"` // From the fault to the start.
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`

	Queued    int           `json:"queued"` // Of those that are timed: it is known for how long they were queued.
	Prompt    int           `json:"prompt"` // Of these: they found room at once.
	PromptMax time.Duration `json:"prompt_max_ns"`
}

// movedOf sums up what began anew in runs.
func movedOf(reports []Report) Moved {
	var sum Moved
	var took []time.Duration
	for i := range reports {
		r := &reports[i]
		for _, m := range r.Moves {
			switch {
			case !m.byLease():
				sum.Others++
				continue
			case m.After > 0:
				took = append(took, duration(m.After))
				if m.Waited != nil {
					sum.Queued++
				}
				if m.Waited != nil && duration(*m.Waited) < roomAtOnce {
					sum.Prompt++
					sum.PromptMax = max(sum.PromptMax, duration(m.After))
				}
			}
			sum.Leases++
		}
		if r.Long() {
			sum.Runs++
			if r.Leases() == 0 {
				sum.Without++
			}
		}
	}
	sum.P50, sum.P99, sum.Max = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1)
	return sum
}

// Leases returns how many attempts began in the place of one whose lease had
// ended.
func (r *Report) Leases() int {
	n := 0
	for i := range r.Moves {
		if r.Moves[i].byLease() {
			n++
		}
	}
	return n
}

// Long reports whether something was broken for longer than a lease lasts, by
// plan.
func (r *Report) Long() bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool { return slices.Contains(longNames(), f.Nemesis) })
}
