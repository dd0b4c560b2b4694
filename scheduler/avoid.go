package scheduler

import "berth/compute"

// elsewhere returns the best node for e, and its score, leaving out nodes on
// which its code failed to start. If all others are busy it returns -1, and e
// waits for them, so that a node on which nothing starts does not drain the
// queue. If no other node could ever host e, it returns the best of all nodes.
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

// bestOther returns the entry of the best node on which the code of e has not
// failed to start, or of one that never fits if none exists.
func (s *pass) bestOther(e *compute.Execution, r *scoreTree) int64 {
	other := entry(neverFits, positions-1)
	for i, at := range r.levels[0] {
		if at < other && !e.Avoids(s.packer.slots[i].Record.ID) {
			other = at
		}
	}
	return other
}

// avoids reports whether e avoids the nodes on which its code failed to start,
// because another node could host it at some time.
func (s *pass) avoids(e *compute.Execution, r *scoreTree) bool {
	return len(e.Avoid) > 0 && s.bestOther(e, r)>>positionBits < nodeDown
}
