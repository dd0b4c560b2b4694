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
	"berth/bench/quantile"
	"berth/compute"
)

// Move is a lost attempt whose code had begun, with the attempt that replaced
// it.
type Move struct {
	Execution string `json:"execution"`
	Node      string `json:"node"`
	Nemesis   string `json:"nemesis"` // The fault that hit the node; "none" for nothing.
	Reason    string `json:"reason"`  // The reason of the loss.
	// After is the time from the fault until the code began again. It is 0 if
	// there was no fault or the execution had to wait for its node.
	After float64 `json:"after_s"`
	// Waited is how much of After the execution was queued, by the cluster's
	// clock. It is close to 0 unless others had the GPUs. It is nil if unknown,
	// as in runs before 2026-11-22 23:30 UTC.
	Waited *float64 `json:"waited_s,omitempty"`
}

// byLease reports whether the attempt ended because its node sent no heartbeat.
func (m *Move) byLease() bool { return m.Reason == compute.ReasonNodeLost.String() }

// Limits of the handling of lost attempts.
const (
	// moveLimit is the longest time from the loss of a node until its code
	// begins again elsewhere. It is the 25 s until the leader gives the node
	// up, a scheduler pass and the start, plus the delays of a loaded machine
	// and a short queue.
	moveLimit = 45 * time.Second
	// reportLimit is how long a healthy node may take to persist the end of
	// code, and then to report it.
	reportLimit = 5 * time.Second
	// beatSlack is how much earlier than its end the code may have given its
	// last sign of life.
	beatSlack = time.Second
	// promptLimit is the longest queueing time, some passes, of an execution
	// that finds capacity at once.
	promptLimit = time.Second
)

// timeline is an execution's history from its code's marks and from the
// cluster. The times of its marks are the run's.
type timeline struct {
	id       string
	status   compute.Status
	stopped  bool // By a client, for certain or possibly.
	bound    bool // It has to wait for its previous node.
	marks    map[uint64]check.Mark
	attempts []wire.Attempt // Oldest first.
}

// checkLost checks every execution that lost an attempt: how long the restart
// took, and whether code ended without the cluster's knowledge.
func (s *session) checkLost(ctx context.Context, marks []check.Mark, report *Report) ([]check.Violation, error) {
	timelines, err := s.timelines(ctx, marks)
	if err != nil {
		return nil, err
	}
	j := lossChecker{faults: report.Faults, slow: int64(max(s.cfg.Slow, 1)), closing: s.closing}
	var wrong []check.Violation
	for i := range timelines {
		moves, late := j.moves(&timelines[i])
		report.Moves = append(report.Moves, moves...)
		wrong = append(append(wrong, late...), j.lostResults(&timelines[i])...)
	}
	return wrong, nil
}

// timelines returns the history of every execution that lost an attempt.
func (s *session) timelines(ctx context.Context, marks []check.Mark) ([]timeline, error) {
	byExecution := map[string]map[uint64]check.Mark{}
	for _, m := range marks {
		if byExecution[m.Execution] == nil {
			byExecution[m.Execution] = map[uint64]check.Mark{}
		}
		m.From, m.To = m.From-s.boot, m.To-s.boot
		byExecution[m.Execution][m.Attempt] = m
	}
	var all []timeline
	for _, o := range s.orgs {
		c := s.admin.WithToken(o.key)
		for _, e := range s.final[o.slug].executions {
			own := byExecution[e.ExecutionID.String()]
			if len(own) == 0 || e.Retries == 0 && e.Status != compute.StatusSystemFailure && len(own) == 1 {
				continue
			}
			whole, err := c.Execution(ctx, e.ExecutionID, 0)
			if err != nil {
				return nil, stuck{fmt.Errorf("read execution %s: %w", e.ExecutionID, err)}
			}
			ours := e.Metadata != nil && slices.Contains(e.Metadata.Tags, markedTag)
			all = append(all, timeline{
				id: e.ExecutionID.String(), status: e.Status, stopped: !ours || s.stopped[e.ExecutionID],
				bound: world.OnOneNode(e.HardwareProfile), marks: own, attempts: whole.Attempts,
			})
		}
	}
	slices.SortFunc(all, func(a, b timeline) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// lossChecker judges losses by the faults of a run.
type lossChecker struct {
	faults  []Fault
	slow    int64 // Multiplies limits.
	closing int64
}

// scaled returns a limit as nanoseconds of the run.
func (j *lossChecker) scaled(limit time.Duration) int64 { return int64(limit) * j.slow }

// moves returns the lost and replaced attempts of an execution, and a violation
// for each that took too long.
func (j *lossChecker) moves(p *timeline) (moves []Move, wrong []check.Violation) {
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
			continue // It must not restart, or need not.
		}
		limit := j.scaled(moveLimit)
		if f == nil || p.bound || !j.alone(f, min(next, f.from+limit)) || next-f.from <= limit {
			continue
		}
		wrong = append(wrong, check.Violation{What: "late move", Object: "execution " + p.id, Detail: fmt.Sprintf(
			"attempt %d on %s was lost with %s; its code did not restart within %v (began: %v, %v after the fault)",
			a.Attempt, a.Node, f.Nemesis, time.Duration(limit), again, time.Duration(next-f.from).Round(time.Millisecond))})
	}
	return moves, wrong
}

// beganAfter returns when the code of an attempt after the i-th began, and for
// how many seconds the execution was queued in between; nil if unknown.
func (p *timeline) beganAfter(i int) (at int64, waited *float64, began bool) {
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

// cause returns the newest fault that hit a node before or at its code's last
// sign of life and that did not end long before; nil for none.
func (j *lossChecker) cause(node string, last int64) *Fault {
	for i := len(j.faults) - 1; i >= 0; i-- {
		f := &j.faults[i]
		if f.hit(node) && f.from <= last+int64(beatSlack) && f.until()+j.scaled(reportLimit) >= last {
			return f
		}
	}
	return nil
}

// alone reports whether a fault hit one node and nothing else was broken until
// an instant. Then only the loss of that node delayed its work.
func (j *lossChecker) alone(f *Fault, until int64) bool {
	return len(f.On) == 1 && !slices.ContainsFunc(j.faults, func(o Fault) bool {
		return o.Nemesis != calmNemesis && o.from > f.from && o.from < until
	})
}

// lostResults returns a violation for code that ended without the cluster's
// knowledge, and without a fault that may have lost its report.
func (j *lossChecker) lostResults(p *timeline) []check.Violation {
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
			"the code of attempt %d on %s ended %.1f s after the run began, and the attempt is recorded as %s (%s)",
			a.Attempt, a.Node, time.Duration(m.To).Seconds(), a.Status, reason)})
	}
	return wrong
}

// excused reports whether the report about code that ended on a node may be
// lost. It may be if a fault broke the supervisor or the disk before the end
// was persisted, or if the node was away for longer than a lease before it
// could report. A node that is killed, paused or cut off for less must report.
func (j *lossChecker) excused(node string, ended int64) bool {
	from, written := ended-int64(beatSlack), ended+j.scaled(reportLimit)
	reported := written
	for i := range j.faults {
		if f := &j.faults[i]; f.from <= ended && f.until() > ended && f.until() < math.MaxInt64 {
			reported = max(reported, f.until()+j.scaled(reportLimit)) // The node may have had to wait.
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

// lossy returns the faults that may lose the report of an end however short
// they are.
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

// Moved sums up restarts after lost attempts.
type Moved struct {
	Leases int `json:"leases"` // Restarts after an expired lease; the times below are theirs.
	Others int `json:"others"`
	// Runs counts runs with a fault that outlasts a lease. Without counts those
	// of them in which no lease expired.
	Runs    int `json:"runs"`
	Without int `json:"without"`

	P50 time.Duration `json:"p50_ns"` // From the fault to the start.
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`

	Queued    int           `json:"queued"` // Timed restarts whose queueing time is known.
	Prompt    int           `json:"prompt"` // Those of Queued that found capacity at once.
	PromptMax time.Duration `json:"prompt_max_ns"`
}

// movedOf sums up the restarts in runs.
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
				if m.Waited != nil && duration(*m.Waited) < promptLimit {
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
	sum.P50, sum.P99, sum.Max = quantile.At(took, 0.5), quantile.At(took, 0.99), quantile.At(took, 1)
	return sum
}

// Leases returns how many attempts replaced one whose lease had expired.
func (r *Report) Leases() int {
	n := 0
	for i := range r.Moves {
		if r.Moves[i].byLease() {
			n++
		}
	}
	return n
}

// Long reports whether the run planned a fault that outlasts a lease.
func (r *Report) Long() bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool { return slices.Contains(longNames(), f.Nemesis) })
}
