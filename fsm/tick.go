package fsm

import "berth/compute"

const (
	// RetirePerTick is how many terminal executions one Tick forgets at most.
	// When it forgot that many there may be more.
	RetirePerTick = 1_000

	// retireSweep is how many it looks at to find them: children of parents
	// that live are in front of others that may go.
	retireSweep = 16 * RetirePerTick
)

// tick lets time pass. Each part does a bounded amount of work.
func (s *lifecycle) tick() Result {
	s.money.growHolds()
	s.requests.expireOps()
	s.membership.expireTokens()
	s.identity.expireRefresh()
	s.identity.expireSigningKeys()
	s.statistics.countLate()
	s.membership.endDrains()
	return Result{Count: s.retention.retire()}
}

// retire forgets terminal executions past their age or number, the oldest
// first, and returns how many, where they do not go to archives. Their ledger
// lines stay. A child stays as long as its parent lives, which counts on it.
func (s *retention) retire() int {
	if s.Format() >= formatTrust && !s.meta.Settings.Forget {
		return 0
	}
	keep, most := s.meta.Settings.KeepFinished, s.meta.Settings.MaxFinished
	looks, left := retireSweep, s.finished.Len()
	if s.Format() < formatTrust {
		looks = RetirePerTick // As every replica of that format does.
	}
	var due []*compute.Execution
	waiting, lives := make(map[compute.ExecutionID]compute.ExecutionID), make(map[compute.ExecutionID]bool)
	for m := range s.finished.Keys(timeKey{}) {
		tooOld := keep > 0 && m.at < s.meta.Now.Add(-keep)
		tooMany := most > 0 && left > most
		if looks == 0 || len(due) == RetirePerTick || !tooOld && !tooMany {
			break
		}
		looks--
		id := m.execution()
		if parent, child := s.parentOf(id); child && s.lives(parent, lives) {
			waiting[id] = parent
			continue
		}
		e, _ := s.executions.Get(id)
		due = append(due, e)
		left--
	}
	s.waiting = waiting
	for _, e := range due {
		s.forget(e)
	}
	return len(due)
}

// parentOf returns the parent of an execution that has ended, if it has one. A
// sweep begins where the one before began: what that skipped is remembered.
func (s *retention) parentOf(id compute.ExecutionID) (compute.ExecutionID, bool) {
	if parent, ok := s.waiting[id]; ok {
		return parent, true
	}
	var parent compute.ExecutionID
	e, encoded, _ := s.executions.Peek(id, s.buffer)
	if e != nil {
		parent = e.Parent
	} else {
		s.buffer, parent = encoded, partialParent(encoded)
	}
	return parent, !parent.IsZero()
}

// lives reports whether a parent is known and has not ended. It asks once for
// each.
func (s *retention) lives(parent compute.ExecutionID, known map[compute.ExecutionID]bool) bool {
	is, ok := known[parent]
	if !ok {
		e, there := s.executions.Get(parent)
		is = there && !e.Status.Terminal()
		known[parent] = is
	}
	return is
}

// forget removes an execution with its attempts and callbacks.
func (s *retention) forget(e *compute.Execution) {
	for _, a := range s.Attempts(e.ID) {
		s.attempts.Drop(numberKey{e.ID.UUID, a.Epoch})
	}
	var urls []numberKey
	for k := range s.callbacks.From(numberKey{owner: e.ID.UUID}) {
		if k.owner != e.ID.UUID {
			break
		}
		urls = append(urls, k)
	}
	for _, k := range urls {
		s.callbacks.Drop(k)
	}
	s.execution.dropExecution(e.ID)
}
