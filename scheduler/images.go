package scheduler

import "berth/compute"

// withImages returns a node that is as good for e as the best one and has its images, so
// that nothing is pulled; the best one if there is no such node.
func (s *pass) withImages(e *compute.Execution, r *scoreTree, best int, score int64) int {
	if e.Container == nil || len(e.Container.Images) == 0 || s.packer.slots[best].Record.HasImages(e) {
		return best
	}
	for i, at := range r.levels[0] {
		n := s.packer.slots[i].Record
		if at>>positionBits == score && !e.Avoids(n.ID) && n.HasImages(e) {
			return i
		}
	}
	return best
}
