package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/partial"
)

const (
	// RetirePerTick is the largest number of terminal executions that one Tick
	// removes. After that many there may be more.
	RetirePerTick = 1_000

	// retireSweep is how many executions one Tick scans for them: sub-executions
	// of live parents are in front of others that may be removed.
	retireSweep = 16 * RetirePerTick
)

// tick runs the periodic work of the state. Each part does a bounded amount of
// work.
func (s *lifecycle) tick() command.Result {
	s.money.growHolds()
	s.money.postDueTokens()
	s.money.endBudgets()
	s.quota.endQuotas()
	s.requests.expireOps()
	s.membership.expireTokens()
	s.identity.expireRefresh()
	s.identity.expireSigningKeys()
	s.statistics.countLate()
	s.membership.endDrains()
	s.upload.expire()
	s.object.expire()
	return command.Result{Count: s.retention.retire()}
}

// retire removes terminal executions past their age or number, the oldest
// first, and returns how many. It does nothing where they are archived. Their
// ledger lines stay. A sub-execution stays as long as its parent is live,
// because the parent refers to it.
func (s *retention) retire() int {
	if s.view.Format() >= format.Trust && !s.view.meta.Settings.Forget {
		return 0
	}
	keep, most := s.view.meta.Settings.KeepFinished, s.view.meta.Settings.MaxFinished
	scans, left := retireSweep, s.view.finished.Len()
	if s.view.Format() < format.Trust {
		scans = RetirePerTick // Required for identical replicas of that format.
	}
	var due []*compute.Execution
	waiting, lives := make(map[compute.ExecutionID]compute.ExecutionID), make(map[compute.ExecutionID]bool)
	for m := range s.view.finished.Keys(timeKey{}) {
		tooOld := keep > 0 && m.at < s.view.meta.Now.Add(-keep)
		tooMany := most > 0 && left > most
		if scans == 0 || len(due) == RetirePerTick || !tooOld && !tooMany {
			break
		}
		scans--
		id := m.execution()
		if parent, child := s.parentOf(id); child && s.lives(parent, lives) && s.named(parent, id) {
			waiting[id] = parent
			continue
		}
		e, _ := s.view.executions.Get(id)
		due = append(due, e)
		left--
	}
	s.waiting = waiting
	for _, e := range due {
		s.forget(e)
	}
	return len(due)
}

// parentOf returns the parent of an ended execution, if it has one. A sweep
// starts where the previous one started, so the parents of skipped executions
// are remembered.
func (s *retention) parentOf(id compute.ExecutionID) (compute.ExecutionID, bool) {
	if parent, ok := s.waiting[id]; ok {
		return parent, true
	}
	var parent compute.ExecutionID
	e, encoded, _ := s.view.executions.Peek(id, s.buffer)
	if e != nil {
		parent = e.Parent
	} else {
		s.buffer, parent = encoded, partial.Parent(encoded)
	}
	return parent, !parent.IsZero()
}

// lives reports whether a parent is known and has not ended. It reads each
// parent once.
func (s *retention) lives(parent compute.ExecutionID, known map[compute.ExecutionID]bool) bool {
	is, ok := known[parent]
	if !ok {
		e, there := s.view.executions.Get(parent)
		is = there && !e.Status.Terminal()
		known[parent] = is
	}
	return is
}

// named reports whether a live parent refers to a sub-execution. A service refers to
// the newest replicas only.
func (s *retention) named(parent, child compute.ExecutionID) bool {
	e, _ := s.view.executions.Get(parent)
	return e.Kind != compute.KindService || slices.Contains(e.Children(), child)
}

// forget removes an execution with its attempts and callbacks.
func (s *retention) forget(e *compute.Execution) {
	for _, a := range s.view.Attempts(e.ID) {
		s.view.attempts.Drop(numberKey{e.ID.UUID, a.Epoch})
	}
	var urls []numberKey
	for k := range s.view.callbacks.From(numberKey{owner: e.ID.UUID}) {
		if k.owner != e.ID.UUID {
			break
		}
		urls = append(urls, k)
	}
	for _, k := range urls {
		s.execution.view.dropCallback(k)
	}
	s.view.dropOutputs(e.ID)
	s.execution.dropExecution(e.ID)
}
