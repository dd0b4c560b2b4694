package fsm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

var updateDocs = flag.Bool("update-docs", false, "write the table of charges in docs/operations.md instead of comparing")

// TestChargesAreDocumented holds the table in docs/operations.md to that of the code.
func TestChargesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| what | charged |\n|---|---|\n")
	for _, rule := range append(fsm.ChargeRules(), fsm.FreeAttempts()...) {
		fmt.Fprintf(&table, "| %s | %s |\n", rule.Case, rule.Charge)
	}
	path := filepath.Join("..", "docs", "operations.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- charges -->\n", "<!-- end of charges -->\n"
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("docs/operations.md has no place for the table of charges")
	}
	if *updateDocs {
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table.String() {
		t.Errorf("docs/operations.md has\n%s\nthe code\n%s\n(go test ./fsm -run TestChargesAreDocumented -update-docs)", old, table.String())
	}
}

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
