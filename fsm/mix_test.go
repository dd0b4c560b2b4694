package fsm_test

import (
	"bytes"
	"fmt"
	"testing"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// TestMixCountsSubmits checks that the state counts the requests of
// executions and sub-executions, and publishes the mix in steps.
func TestMixCountsSubmits(t *testing.T) {
	w := newWorld(t)
	before := w.view()
	for range 10 {
		w.submit("t4")
	}
	for range 5 {
		w.submit("cpu.2x")
	}
	if m := w.view().Mix(); m != before.Mix() || m.Version != 0 {
		t.Errorf("after 15 submits the mix is %+v", m)
	}
	w.submit("a100.500m")
	m := w.view().Mix()
	counts := map[string]uint64{}
	for _, s := range m.Shares {
		counts[fmt.Sprint(s.Request.GPUType, s.Request.GPUs, " ", s.Request.MilliGPU)] = s.Count
	}
	want := map[string]uint64{"t41 1000": 10, "0 0": 5, "a1001 500": 1}
	if m.Version != 1 || fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("version %d says %v, want %v", m.Version, counts, want)
	}
	w.submit("t4")
	if w.view().Mix() != m {
		t.Error("one submit more is another mix")
	}
	var snapshot bytes.Buffer
	if err := w.view().WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	restored, err := restore(snapshot.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got := restored.View().Mix(); fmt.Sprint(*got) != fmt.Sprint(*m) {
		t.Errorf("restored as %+v, was %+v", got, m)
	}
}

// TestNodesChangedListsChanges checks in random histories that a view lists
// every node whose record differs from that of any earlier view that it knows.
func TestNodesChangedListsChanges(t *testing.T) {
	complete, partial := 0, 0
	for seed := range uint64(12) {
		h := newHistorian(t, seed)
		views := []*fsm.View{h.view()}
		var revisions []compute.Revision
		for range 300 {
			_, now, _ := h.view().NodesChanged(compute.Revision{})
			views, revisions = append(views, h.view()), append(revisions, now)
			h.step()
			i := h.rng.IntN(len(revisions))
			changed, _, ok := h.view().NodesChanged(revisions[i])
			if !ok {
				partial++
				continue
			}
			complete++
			named := map[compute.NodeID]bool{}
			for _, id := range changed {
				named[id] = true
			}
			past := views[i+1]
			for n := range h.view().Nodes() {
				if before, known := past.Node(n.ID); !known || before != n && !named[n.ID] {
					t.Fatalf("seed %d: node %s changed and is not named (known before: %v)", seed, n.Name, known)
				}
			}
			for n := range past.Nodes() {
				if _, known := h.view().Node(n.ID); !known {
					t.Fatalf("seed %d: node %s is gone, and that is not said", seed, n.Name)
				}
			}
		}
	}
	if complete < 100 || partial < 100 {
		t.Errorf("%d complete answers and %d others: the histories show nothing", complete, partial)
	}
}

// TestNodesChangedIsLimited checks that the memory of changes is limited, and
// that another history of the state is not mistaken for the same.
func TestNodesChangedIsLimited(t *testing.T) {
	w := newWorld(t)
	_, start, complete := w.view().NodesChanged(compute.Revision{})
	if complete {
		t.Error("the zero revision is known")
	}
	n := w.node("n1")
	drain := func(n *compute.Node) {
		w.must(command.DrainNode{Op: w.op(w.org, "drain"), Actor: w.root, Node: n.ID, Drained: !n.Drained})
	}
	drain(n)
	if changed, _, ok := w.view().NodesChanged(start); !ok || len(changed) != 1 || changed[0] != n.ID {
		t.Errorf("changed is %v, %v", changed, ok)
	}
	old := w.view()
	for range 9000 {
		drain(w.node("n1"))
	}
	if _, _, ok := w.view().NodesChanged(start); ok {
		t.Error("9,001 changes ago is still known")
	}
	if changed, _, ok := old.NodesChanged(start); !ok || len(changed) != 1 {
		t.Errorf("an old view has forgotten: %v, %v", changed, ok)
	}
	var snapshot bytes.Buffer
	if err := w.view().WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	restored, err := restore(snapshot.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, now, _ := w.view().NodesChanged(compute.Revision{})
	if _, _, ok := restored.View().NodesChanged(now); ok {
		t.Error("a restored state takes over another one's revisions")
	}
}
