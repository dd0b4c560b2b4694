package scheduler_test

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
)

// nodeOf returns where an execution is, zero while it waits.
func (s *simulation) nodeOf(id compute.ExecutionID) compute.NodeID {
	all := s.machine.View().Attempts(id)
	if len(all) == 0 {
		return compute.NodeID{}
	}
	return all[len(all)-1].Node
}

// finishOn ends one attempt on a node.
func (s *simulation) finishOn(node compute.NodeID, id compute.ExecutionID) {
	s.tb.Helper()
	for _, w := range s.machine.View().Work(node) {
		if w.Execution.ID == id {
			s.end(w)
			s.finishWork(w)
			return
		}
	}
	s.tb.Fatalf("%s is not on the node", id)
}

// TestSeveralWaitForWholeNodes: not only the first that asks for several GPUs
// has capacity promised. With one reservation for the type, the second node would
// be filled again as soon as half of it is free.
func TestSeveralWaitForWholeNodes(t *testing.T) {
	const nodes = 16 // Each has two GPUs. An eighth of the nodes, two, is promised.
	s := newSimulation(t, slices.Repeat([][]string{{"t4", "t4"}}, nodes)...)
	var running []compute.ExecutionID
	for range 2 * nodes {
		running = append(running, s.submit("t4", limited(10*time.Minute)))
	}
	s.pack()
	var heads []compute.ExecutionID
	for range 3 {
		heads = append(heads, s.submit("t4.2x", limited(time.Hour)))
	}
	s.pack()
	for range 3 { // One GPU becomes free on three nodes.
		for _, id := range running {
			if on := s.nodeOf(id); len(s.machine.View().Work(on)) == 2 {
				s.finishOn(on, id)
				running = slices.DeleteFunc(running, func(x compute.ExecutionID) bool { return x == id })
				break
			}
		}
	}
	var small []compute.ExecutionID
	for range 3 {
		small = append(small, s.submit("t4", limited(9*time.Hour)))
	}
	s.pack()
	placed := 0
	for _, id := range small {
		if s.get(id).Epoch > 0 {
			placed++
		}
	}
	if placed != 1 {
		t.Errorf("%d of three small ones were placed, want one: two nodes are emptying for %d that wait", placed, len(heads))
	}
}

// TestRoomThatEmptiesIsTakenLast: work of a higher priority goes elsewhere as
// long as it fits there, and nowhere else is it held up.
func TestRoomThatEmptiesIsTakenLast(t *testing.T) {
	for _, first := range []int{0, 1} { // Which of the two nodes is the one that empties.
		s := newSimulation(t, []string{"t4", "t4"}, []string{"t4", "t4"})
		var running []compute.ExecutionID
		for i := range 4 {
			d := 10 * time.Hour
			if i/2 == first {
				d = 10 * time.Minute
			}
			running = append(running, s.submit("t4", limited(d)))
			s.pack()
		}
		if s.nodeOf(running[0]) != s.nodeOf(running[1]) {
			t.Fatal("the first two are not together")
		}
		head := s.submit("t4.2x", limited(time.Hour))
		s.pack()
		for _, i := range []int{0, 2} {
			s.finishOn(s.nodeOf(running[i]), running[i])
		}
		empties, other := s.nodeOf(running[2*first]), s.nodeOf(running[2*(1-first)])
		urgent := s.submit("t4", prioritized(60))
		s.pack()
		if got := s.nodeOf(urgent); got != other {
			t.Errorf("the node that empties is %s; the urgent one went to %s and not to %s", empties, got, other)
		}
		more := s.submit("t4", prioritized(60))
		s.pack()
		if got := s.nodeOf(more); got != empties || s.get(head).Epoch > 0 {
			t.Errorf("where nothing else is free, the urgent one went to %s and not to %s", got, empties)
		}
	}
}
