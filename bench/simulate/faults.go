package simulate

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Interruptions counts preemptions, failures and drains.
type Interruptions struct {
	Preempted  int     `json:"preempted"`             // Preempted attempts, whose executions were placed again.
	PreemptedS float64 `json:"preempted_gpu_seconds"` // Their lost work.
	Failures   int     `json:"node_failures"`         // Nodes that went down.
	Drains     int     `json:"node_drains"`           // Nodes that accepted no new work for a while.
	Lost       int     `json:"executions_lost"`       // Executions that ended with their node.
	LostS      float64 `json:"lost_gpu_seconds"`      // Their lost work.
}

// outage is the absence of a node until an instant.
type outage struct {
	node    int
	until   compute.Instant
	drained bool // Not down, but accepts no new work.
}

// faultSource generates failures and drains of nodes. Both are memoryless
// (exponential times, as in most studies of large clusters).
type faultSource struct {
	config *Config
	random *rand.Rand
	fails  compute.Instant // The next failure; never for none.
	drains compute.Instant
	away   []outage // Sorted by the end of the outage.
}

func newFaultSource(c *Config, nodes int) *faultSource {
	t := &faultSource{config: c, random: rand.New(rand.NewPCG(c.Seed, 5)), fails: compute.Never, drains: compute.Never}
	if c.Failures > 0 {
		t.fails = began.Add(t.draw(c.Failures / time.Duration(nodes)))
	}
	if c.Drains > 0 {
		t.drains = began.Add(t.draw(c.Drains / time.Duration(nodes)))
	}
	return t
}

// draw returns an exponentially distributed time.
func (t *faultSource) draw(mean time.Duration) time.Duration {
	return time.Duration(t.random.ExpFloat64() * float64(mean)).Truncate(time.Millisecond)
}

// next returns the time of the next event, never for none.
func (t *faultSource) next() compute.Instant {
	at := min(t.fails, t.drains)
	if len(t.away) > 0 {
		at = min(at, t.away[0].until)
	}
	return at
}

// injectFaults applies the due failures, drains and returns.
func (s *simulation) injectFaults() error {
	t, now := s.faults, s.world.now
	nodes := len(s.fleet.nodes)
	for len(t.away) > 0 && t.away[0].until <= now {
		if err := s.setOutage(t.away[0], false); err != nil {
			return err
		}
		t.away = t.away[1:]
	}
	for ; t.fails <= now; t.fails = t.fails.Add(t.draw(t.config.Failures/time.Duration(nodes)) + time.Millisecond) {
		if err := s.beginOutage(false); err != nil {
			return err
		}
	}
	for ; t.drains <= now; t.drains = t.drains.Add(t.draw(t.config.Drains/time.Duration(nodes)) + time.Millisecond) {
		if err := s.beginOutage(true); err != nil {
			return err
		}
	}
	return nil
}

// beginOutage takes a random node away. It skips a node that is already away.
func (s *simulation) beginOutage(drained bool) error {
	t := s.faults
	o := outage{node: t.random.IntN(len(s.fleet.nodes)), drained: drained}
	o.until = s.world.now.Add(t.draw(t.config.Repair) + time.Second)
	if slices.ContainsFunc(t.away, func(a outage) bool { return a.node == o.node }) {
		return nil
	}
	t.away = append(t.away, o)
	slices.SortFunc(t.away, func(a, b outage) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.node, b.node))
	})
	return s.setOutage(o, true)
}

// setOutage takes a node away or brings it back. The executions on a failed
// node are lost.
func (s *simulation) setOutage(o outage, away bool) error {
	id := s.world.nodes[o.node]
	counts := &s.stats.interruptions
	if o.drained {
		if away {
			counts.Drains++
		}
		return s.world.must(command.DrainNode{Actor: command.Actor{Root: true}, Node: id, Drained: away})
	}
	state := compute.NodeUp
	if away {
		state = compute.NodeDown
		counts.Failures++
	}
	if err := s.world.must(command.SetNodeState{Term: term, Node: id, State: state}); err != nil || !away {
		return err
	}
	var lost []command.AttemptRef
	for _, w := range s.world.machine.View().Work(id) {
		lost = append(lost, command.AttemptRef{Execution: w.Execution.ID, Epoch: w.Attempt.Epoch})
	}
	if len(lost) == 0 {
		return nil
	}
	if err := s.world.must(command.LoseAttempts{Term: term, Node: id, Attempts: lost}); err != nil {
		return err
	}
	for _, ref := range lost {
		j := s.live[ref.Execution]
		heap.Remove(&s.running, j.place)
		e, _ := s.world.machine.View().AnyExecution(j.id)
		s.interrupted(j, e.Status == compute.StatusQueued)
	}
	return nil
}

// interrupted counts an attempt that ended early; again means that its
// execution is back in the queue.
func (s *simulation) interrupted(j *job, again bool) {
	delete(s.live, j.id)
	s.stats.left(j)
	counts, worked := &s.stats.interruptions, gpuSeconds(j.gpuMilli(), s.world.now.Sub(j.started))
	if !again {
		counts.Lost++
		counts.LostS += worked
		return
	}
	counts.Preempted++
	counts.PreemptedS += worked
	j.yields = false
	s.waiting[j.id] = j
}

// schedulePreemptions schedules the end of preempted executions after their
// notice, unless they end by themselves before.
func (s *simulation) schedulePreemptions(all []compute.Preemption) {
	view := s.world.machine.View()
	for _, p := range all {
		j, attempts := s.live[p.Execution], view.Attempts(p.Execution)
		if j == nil || len(attempts) == 0 {
			continue
		}
		a := attempts[len(attempts)-1]
		if until := a.PreemptAt.Add(a.Notice); !a.PreemptAt.IsZero() && until < j.ends {
			j.ends, j.yields = until, true
			heap.Fix(&s.running, j.place)
		}
	}
}

// must commits a command that the state must accept.
func (w *world) must(c command.Command) error {
	results, err := w.entry([]command.Command{c})
	if err == nil && results[0].Refusal != nil {
		err = fmt.Errorf("%T was refused: %w", c, results[0].Refusal)
	}
	return err
}
