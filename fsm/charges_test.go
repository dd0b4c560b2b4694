package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// TestCharges checks each row of the table of charges: the charge, and the reason in the
// ledger.
func TestCharges(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w *world, id compute.ExecutionID)
		want compute.Credits
		note string
	}{
		"completed": {
			func(w *world, id compute.ExecutionID) { w.complete(id, "n3", time.Second) }, 100, "code ran 1s",
		},
		"failed by its code": {func(w *world, id compute.ExecutionID) {
			w.place("n3", id)
			w.must(w.started(id))
			w.must(w.ended(id, compute.StatusFailed, 2*time.Second))
		}, 200, "code ran 2s"},
		"system failure": {func(w *world, id compute.ExecutionID) {
			w.place("n3", id)
			w.must(w.started(id))
			w.must(w.ended(id, compute.StatusSystemFailure, 2*time.Second))
		}, 0, "free: system failure"},
		"never ran": {func(w *world, id compute.ExecutionID) {
			w.must(command.StopExecution{Actor: w.ada, Execution: id, Stop: compute.StopGraceful})
		}, 0, "free: the code never ran"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newestWorld(t)
			id := w.submit("t4")
			test.end(w, id)
			e := w.get(id)
			if !e.Status.Terminal() || e.Billed != test.want {
				t.Errorf("%s is billed %s, want %s", e.Status, e.Billed, test.want)
			}
			for line := range w.view().Ledger(w.org, 0) {
				if line.Execution == id && strings.HasPrefix(line.Note, test.note) {
					return
				}
			}
			t.Errorf("the ledger has no line %q", test.note)
		})
	}
}
