package fsm

import "berth/compute"

// RetirePerTick is how many terminal executions one Tick looks at, to forget
// them. When it forgot that many there may be more.
const RetirePerTick = 1_000

// tick lets time pass. Each part does a bounded amount of work.
func (s *state) tick() Result {
	s.growHolds()
	s.expireOps()
	s.expireTokens()
	s.expireRefresh()
	s.expireSigningKeys()
	s.countLate()
	return Result{Count: s.retire()}
}

// retire forgets terminal executions past their age or number, the oldest
// first, and returns how many. Their ledger lines stay. A child stays as long
// as its parent lives, which counts on it.
func (s *state) retire() int {
	keep, most := s.meta.Settings.KeepFinished, s.meta.Settings.MaxFinished
	n := 0
	for _, m := range s.finished.take(RetirePerTick) {
		tooOld := keep > 0 && m.at < s.meta.Now.Add(-keep)
		tooMany := most > 0 && s.finished.len() > most
		if !tooOld && !tooMany {
			break
		}
		e, _ := s.executions.get(m.execution())
		if parent, ok := s.executions.get(e.Parent); ok && !parent.Status.Terminal() {
			continue
		}
		s.forget(e)
		n++
	}
	return n
}

// forget removes an execution with its attempts and callbacks.
func (s *state) forget(e *compute.Execution) {
	for _, a := range s.Attempts(e.ID) {
		s.attempts.drop(line{e.ID.UUID, a.Epoch})
	}
	var urls []line
	for k := range s.callbacks.from(line{owner: e.ID.UUID}) {
		if k.owner != e.ID.UUID {
			break
		}
		urls = append(urls, k)
	}
	for _, k := range urls {
		s.callbacks.drop(k)
	}
	s.dropExecution(e.ID)
}
