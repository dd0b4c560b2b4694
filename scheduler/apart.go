package scheduler

import "berth/compute"

// apart returns the node for a replica of a service, and its score. It chooses among the
// nodes with the fewest replicas of the service on which the replica fits, so that the
// loss of one node costs the fewest. Among them the best score decides, then whether the
// node has the images.
func (s *pass) apart(e *compute.Execution, r *scoreTree, best int, score int64) (node int, its int64) {
	there := s.replicas(e)
	if len(there) == 0 {
		return s.withImages(e, r, best, score), score
	}
	fewest := there[s.packer.slots[best].Record.ID]
	for i, at := range r.levels[0] {
		n := s.packer.slots[i].Record
		if of := there[n.ID]; at>>positionBits <= worstFit && !e.Avoids(n.ID) &&
			(of < fewest || of == fewest && at>>positionBits < score) {
			best, score, fewest = i, at>>positionBits, of
		}
	}
	for i, at := range r.levels[0] {
		n := s.packer.slots[i].Record
		if at>>positionBits == score && there[n.ID] == fewest && !e.Avoids(n.ID) && n.HasImages(e) {
			return i, score
		}
	}
	return best, score
}

// replicas counts the replicas of the service of e that nodes have, or that this pass
// gives them, without those that are to stop.
func (s *pass) replicas(e *compute.Execution) map[compute.NodeID]int {
	if !s.counted[e.Org] {
		s.counted[e.Org] = true
		for w := range s.view.Held(e.Org) {
			if w.Execution.Kind == compute.KindReplica && !w.Stopping() {
				s.replicasOf(w.Execution.Parent)[w.Attempt.Node]++
			}
		}
	}
	return s.replicasOf(e.Parent)
}

func (s *pass) replicasOf(service compute.ExecutionID) map[compute.NodeID]int {
	there := s.services[service]
	if there == nil {
		there = map[compute.NodeID]int{}
		s.services[service] = there
	}
	return there
}
