package dst

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Intervals of the checks.
const (
	checkAllSpan = 256  // Entries between two checks of all executions.
	checkSpan    = 2048 // Entries between two checks of the whole state.
)

// oracle observes all machines and checks the invariants.
type oracle struct {
	w    *world
	seen uint64 // Entries checked.

	hashes []compute.Hash // Hashes of the state after each entry, from base on.

	starts   map[key]int // Starts of code on all machines.
	running  map[key]*supervisor
	alone    map[compute.ExecutionID]key // The only epoch whose code runs.
	held     map[compute.GPUID]int       // Thousandths held by code on the machine.
	outcomes map[key]compute.Outcome     // As supervisors wrote them.
	ends     map[key]int                 // Reports that the state accepted.

	executions map[compute.ExecutionID]*known
	money      money
	requests   map[compute.ExecutionID]*request // The request of each execution id that was sent.

	brake brake
}

// known is the oracle's record of an execution.
type known struct {
	request  *request
	terminal *compute.Execution // Its final record.
	settled  bool
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, starts: map[key]int{}, running: map[key]*supervisor{}, alone: map[compute.ExecutionID]key{},
		held: map[compute.GPUID]int{}, outcomes: map[key]compute.Outcome{}, ends: map[key]int{},
		executions: map[compute.ExecutionID]*known{}, requests: map[compute.ExecutionID]*request{},
		money: newMoney(),
	}
}

// started checks a start of code: once per epoch, one epoch of an execution at
// a time, and never on a GPU with too little capacity left.
func (o *oracle) started(s *supervisor) {
	k := s.key
	o.starts[k]++
	o.w.report.Starts++
	if n := o.starts[k]; n > 1 {
		o.w.violate("the code of %v is started %d times", k, n)
	}
	if other, ok := o.alone[k.execution]; ok {
		o.w.violate("the code of %v starts while that of epoch %d runs", k, other.epoch)
	}
	if a := attemptOf(o.w.newest(), k); a != nil && a.Ended {
		o.w.violate("the code of %v starts though the state has ended the attempt", k)
	}
	if s.notified || s.stopping != compute.StopNone {
		o.w.violate("the code of %v starts though its supervisor was requested to end it", k)
	}
	o.alone[k.execution], o.running[k] = k, s
	for _, share := range s.shares {
		if o.held[share.GPU] += share.Milli; o.held[share.GPU] > compute.WholeGPU {
			o.w.violate("%v starts on GPU %s of which code holds %d thousandths then", k, share.GPU, o.held[share.GPU])
		}
	}
}

// ended records that no code of an attempt is left.
func (o *oracle) ended(s *supervisor) {
	delete(o.alone, s.key.execution)
	delete(o.running, s.key)
	for _, share := range s.shares {
		o.held[share.GPU] -= share.Milli
	}
}

// outcome records how code ended.
func (o *oracle) outcome(k key, outcome compute.Outcome) { o.outcomes[k] = outcome }

// observe checks an entry when the first replica has applied it.
func (o *oracle) observe(index uint64, view *fsm.View, e *entry, results []command.Result) {
	o.seen = index
	o.w.report.Entries++
	for i, p := range e.proposals {
		o.checkCommand(view, e, p, results[i+1])
	}
	if view.Index() != index {
		o.brake.unsure = true
		return // A batch: the newest view belongs to a later entry.
	}
	o.money.read(o.w, view)
	o.watchBrake(view)
	if index%checkAllSpan == 0 {
		o.checkAll(view)
	}
	if index%checkSpan == 0 {
		o.check(view)
	}
}

// checkCommand checks one command and its result.
func (o *oracle) checkCommand(view *fsm.View, e *entry, p *proposal, r command.Result) {
	w := o.w
	if r.Repeat {
		w.report.Repeats++
	}
	if term := termOf(p.cmd); term != 0 && term < e.term {
		if r.Refusal == nil || r.Refusal.Detail != "stale_term" {
			w.violate("%T of term %d is accepted in term %d", p.cmd, term, e.term)
		}
		w.report.StaleTerms++
		return
	}
	switch c := p.cmd.(type) {
	case command.Submit:
		o.submitted(c, r)
	case command.CommitPlan:
		for _, a := range c.Plan.Assignments {
			o.checkExecution(view, a.Execution)
		}
	case command.StartAttempt:
		o.checkExecution(view, c.Start.Execution)
	case command.FinishAttempt:
		o.finished(view, c, r)
	case command.SetNodeState:
		o.brake.unsure = true // Until the end of the entry, which may release the breaker.
		if c.State == compute.NodeUp && r.Refusal == nil {
			o.checkUp(c)
		}
	case command.DrainNode:
		o.brake.unsure = true
	case command.LoseAttempts:
		w.report.Lost += r.Count
		if node, _ := view.Node(c.Node); r.Count > 0 && o.brake.holds && !o.brake.unsure && !node.Drained {
			w.violate("%d attempts are given up %v after too many nodes vanished at once", r.Count, w.now-o.brake.began)
		}
		for _, ref := range c.Attempts {
			o.checkExecution(view, ref.Execution)
		}
	case command.StopExecution:
		o.checkExecution(view, c.Execution)
	}
}

// checkUp checks that a leader has heard a node before it records the node as
// up. Work placed on a dead node waits for a lease to end and may be lost with
// it.
func (o *oracle) checkUp(c command.SetNodeState) {
	for _, m := range o.w.machines {
		if m.node != c.Node {
			continue
		}
		for _, s := range o.w.servers {
			if s.term == c.Term && s.heard[m.id] == 0 {
				o.w.violate("%s is recorded as up by a leader that has not heard it", m.name)
			}
		}
	}
}

// submitted records an accepted execution: one per request.
func (o *oracle) submitted(c command.Submit, r command.Result) {
	q := o.requests[c.Execution.ID]
	if r.Refusal != nil || q == nil {
		return
	}
	if !r.Repeat {
		if !q.execution.IsZero() && q.execution != c.Execution.ID {
			o.w.violate("request %d is executed twice: as %v and as %v", q.number, q.execution, c.Execution.ID)
		}
		q.execution = c.Execution.ID
		o.executions[c.Execution.ID] = &known{request: q}
	}
	if r.Execution != q.execution {
		o.w.violate("request %d is answered with %v and is %v", q.number, r.Execution, q.execution)
	}
}

// finished checks a node's report of an end.
func (o *oracle) finished(view *fsm.View, c command.FinishAttempt, r command.Result) {
	k := key{c.Outcome.Execution, c.Outcome.Epoch}
	o.checkExecution(view, k.execution)
	if r.Refusal != nil {
		o.w.report.StaleReports++
		return
	}
	if o.ends[k]++; o.ends[k] > 1 {
		o.w.violate("the end of %v is accepted %d times", k, o.ends[k])
	}
	if r.Status == compute.StatusQueued {
		o.w.report.Requeued++
	}
	if truth, ok := o.outcomes[k]; c.Outcome.Ran && (!ok || truth.Duration != c.Outcome.Duration) {
		o.w.violate("%v ended after %v, and the accepted report says %v", k, truth.Duration, c.Outcome.Duration)
	}
}

// checkExecution checks an execution that a command changed.
func (o *oracle) checkExecution(view *fsm.View, id compute.ExecutionID) {
	known := o.executions[id]
	if known == nil {
		return
	}
	e, ok := view.AnyExecution(id)
	if !ok {
		if known.terminal == nil {
			o.w.violate("execution %v vanished before it ended", id)
		}
		return
	}
	for _, a := range view.Attempts(id) {
		k := key{id, a.Epoch}
		if s := o.running[k]; a.Ended && s != nil {
			o.w.violate("the state has ended attempt %v and released its GPUs, and its code runs", k)
		}
	}
	switch before := known.terminal; {
	case before == nil && e.Status.Terminal():
		known.terminal = e
		o.w.report.Executions++
		o.w.report.Retried += e.Retries
		o.w.report.Unstarted += len(e.Avoid)
		failed := e.Status == compute.StatusSystemFailure && e.Stop == compute.StopNone
		if failed && e.Retries < known.request.spec.MaxRetries {
			o.w.violate("execution %v ended as %v (%v) after %d of %d retries",
				id, e.Status, e.Reason, e.Retries, known.request.spec.MaxRetries)
		}
		if e.Reason == compute.ReasonDrained && (!e.Ran || e.Preemptible || e.Retries < known.request.spec.MaxRetries) {
			o.w.violate("execution %v ended because its node was drained, and it could have been retried", id)
		}
	case before != nil && (e.Status != before.Status || e.Reason != before.Reason || e.Billed != before.Billed ||
		e.Duration != before.Duration || e.Epoch != before.Epoch || e.FinishedAt != before.FinishedAt):
		o.w.violate("execution %v ended as %v (%v) and is now %v (%v)", id, before.Status, before.Billed, e.Status, e.Billed)
	}
}

// checkAll checks all executions.
func (o *oracle) checkAll(view *fsm.View) {
	for _, id := range slices.SortedFunc(maps.Keys(o.executions), func(a, b compute.ExecutionID) int {
		return slices.Compare(a.UUID[:], b.UUID[:])
	}) {
		o.checkExecution(view, id)
		if known := o.executions[id]; known.terminal != nil && !known.settled {
			known.settled = true
			o.money.settle(o.w, known.terminal)
		}
		if known := o.executions[id]; known.terminal != nil && view.Now().Sub(known.terminal.FinishedAt) > 2*keepFinished {
			o.forget(id, known)
		}
	}
	for _, q := range o.w.acknowledged {
		if o.executions[q.execution] == nil && !q.forgotten {
			o.w.violate("request %d was acknowledged as %v, which does not exist", q.number, q.answered)
		}
	}
}

// forget drops the record of an execution that ended long ago.
func (o *oracle) forget(id compute.ExecutionID, known *known) {
	known.request.forgotten = true
	delete(o.executions, id)
	for epoch := range known.terminal.Epoch + 1 {
		delete(o.outcomes, key{id, epoch})
		delete(o.ends, key{id, epoch})
	}
}

// check checks the invariants of the state itself.
func (o *oracle) check(view *fsm.View) {
	o.w.report.Checks++
	if err := view.Check(); err != nil {
		o.w.violate("the state at %d breaks an invariant: %v", view.Index(), err)
	}
}

// compare compares the states of replicas after the same entry.
func (o *oracle) compare(s *server) {
	view := s.state.View()
	index, hash := view.Index(), view.Hash()
	for uint64(len(o.hashes)) <= index {
		o.hashes = append(o.hashes, compute.Hash{})
	}
	switch {
	case o.hashes[index] == compute.Hash{}:
		o.hashes[index] = hash
	case o.hashes[index] != hash:
		o.w.violate("replica %d differs from another after entry %d", s.id, index)
	default:
		o.w.report.Compared++
	}
}

// attemptOf returns an attempt in a view, or nil if it is unknown.
func attemptOf(view *fsm.View, k key) *compute.Attempt {
	for _, a := range view.Attempts(k.execution) {
		if a.Epoch == k.epoch {
			return a
		}
	}
	return nil
}

// String returns the attempt's name on nodes.
func (k key) String() string { return fmt.Sprintf("%s.%d", k.execution, k.epoch) }

// violate ends the simulation with a violated invariant.
func (w *world) violate(format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{Seed: w.config.Seed, At: w.now, What: fmt.Sprintf(format, args...)}
	}
}

// checkLiveness checks liveness some time after the last fault: every
// acknowledged execution has ended.
func (o *oracle) checkLiveness() {
	view := o.w.newest()
	o.checkAll(view)
	o.check(view)
	for _, q := range o.w.acknowledged {
		known := o.executions[q.execution]
		if known == nil || known.terminal != nil || q.forgotten {
			continue
		}
		if e, ok := view.AnyExecution(q.execution); ok {
			o.w.violate("execution %v is still %v (%v) %v after the last fault", e.ID, e.Status, e.Reason, healTime)
		}
	}
	for k := range o.running {
		o.w.violate("the code of %v still runs %v after the last fault", k, healTime)
	}
}

// healTime is how long a simulation continues without faults.
const healTime = 40 * time.Minute
