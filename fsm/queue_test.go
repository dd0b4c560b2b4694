package fsm_test

import (
	"bytes"
	"testing"

	"berth/compute"
	"berth/fsm"
)

// queueOf returns the records of the queue of v.
func queueOf(v *fsm.View) map[compute.ExecutionID]*compute.Execution {
	out := map[compute.ExecutionID]*compute.Execution{}
	for e := range v.Queue() {
		out[e.ID] = e
	}
	return out
}

// TestQueueChangedListsChanges checks in random histories that a view lists
// every execution that joined or left the queue, or whose record there differs,
// since any earlier view that it knows.
func TestQueueChangedListsChanges(t *testing.T) {
	joined, left, differ := 0, 0, 0
	for seed := range uint64(12) {
		h := newHistorian(t, seed)
		var queues []map[compute.ExecutionID]*compute.Execution
		var revisions []compute.Revision
		for range 300 {
			_, now, _ := h.view().QueueChanged(compute.Revision{})
			queues, revisions = append(queues, queueOf(h.view())), append(revisions, now)
			h.step()
			i := h.rng.IntN(len(revisions))
			changed, _, ok := h.view().QueueChanged(revisions[i])
			if !ok {
				if revisions[i].Origin == now.Origin {
					t.Fatalf("seed %d: a revision of this history is not known", seed)
				}
				continue
			}
			named := map[compute.ExecutionID]bool{}
			for _, id := range changed {
				named[id] = true
			}
			is := queueOf(h.view())
			for id, e := range is {
				before, known := queues[i][id]
				switch {
				case !known:
					joined++
				case before != e:
					differ++
				default:
					continue
				}
				if got, ok := h.view().Queued(id); !named[id] || !ok || got != e {
					t.Fatalf("seed %d: execution %s changed: named %v, read %v", seed, id, named[id], ok)
				}
			}
			for id := range queues[i] {
				if _, known := is[id]; known {
					continue
				}
				left++
				if _, ok := h.view().Queued(id); ok || !named[id] {
					t.Fatalf("seed %d: execution %s left: named %v, read %v", seed, id, named[id], ok)
				}
			}
		}
	}
	if joined < 100 || left < 100 || differ < 10 {
		t.Errorf("%d joined, %d left, %d with another record: the histories show nothing", joined, left, differ)
	}
}

// TestQueueChangedIsOfOneHistory checks that another life of the state is not
// mistaken for the same.
func TestQueueChangedIsOfOneHistory(t *testing.T) {
	w := newWorld(t)
	_, start, complete := w.view().QueueChanged(compute.Revision{})
	if complete {
		t.Error("the zero revision is known")
	}
	id := w.submit("t4")
	if changed, _, ok := w.view().QueueChanged(start); !ok || len(changed) != 1 || changed[0] != id {
		t.Errorf("changed is %v, %v", changed, ok)
	}
	var snapshot bytes.Buffer
	if err := w.view().WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	restored, err := restore(snapshot.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, now, _ := w.view().QueueChanged(compute.Revision{})
	if _, _, ok := restored.View().QueueChanged(now); ok {
		t.Error("a restored state takes over another one's revisions")
	}
}
