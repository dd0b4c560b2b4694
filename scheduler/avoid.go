package scheduler

import "berth/compute"

// elsewhere returns the best node for e beside those where its code could not
// be started, and its score. Where all others are busy there is none, -1, and
// e waits for them, so that a node on which nothing starts does not swallow
// the queue. Where no other node could host e now or later, the best of all
// remains: it is what there is.
func (s *pass) elsewhere(e *compute.Execution, r *scoreTree, best int, score int64) (node int, its int64) {
	if score > worstFit || !e.Avoids(s.packer.slots[best].Record.ID) {
		return best, score
	}
	other := s.bestOther(e, r)
	switch its = other >> positionBits; {
	case its >= nodeDown:
		return best, score
	case its > worstFit:
		return -1, its
	}
	return int(other & (positions - 1)), other >> positionBits
}

// bestOther returns the entry of the best node for e beside those where its code
// could not be started, of one that never fits if there is none.
func (s *pass) bestOther(e *compute.Execution, r *scoreTree) int64 {
	other := entry(neverFits, positions-1)
	for i, at := range r.levels[0] {
		if at < other && !e.Avoids(s.packer.slots[i].Record.ID) {
			other = at
		}
	}
	return other
}

// choosy reports whether e does not go where its code could not be started,
// because another node could host it now or later.
func (s *pass) avoids(e *compute.Execution, r *scoreTree) bool {
	return len(e.Avoid) > 0 && s.bestOther(e, r)>>positionBits < nodeDown
}
