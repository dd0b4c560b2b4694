//go:build long

package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/attempt"
	"berth/compute"
	"berth/node/nodetest"
	"berth/node/repair"
)

// TestRestoreDrill is the drill of docs/operations.md: a cluster goes back to a
// backup. Records of the backup are there and later ones are not. Executions that ran
// are ended and free, also those that the backup lacks. The servers of the previous
// epoch join empty.
func TestRestoreDrill(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	_, followers := split(t, c, root)
	api := nodetest.MustClient(t, account.Key, c.Nodes[0].URL)

	done := mustBegin(t, api, "a100", "print(1)")
	mustFinish(t, api, done)
	live := mustBegin(t, api, "t4", "import time\ntime.sleep(300)\n")
	nodetest.Eventually(t, time.Minute, "the execution to run", func() bool {
		e, err := api.Execution(t.Context(), live, 0)
		return err == nil && e.Status == compute.StatusRunning
	})
	backup := mustSave(t, nodetest.MustClient(t, c.RootToken, followers[0]))
	after := mustBegin(t, api, "a100", "print(2)")
	mustFinish(t, api, after)
	stray := mustBegin(t, api, "a100", "import time\ntime.sleep(300)\n") // Missing in the backup.
	nodetest.Eventually(t, time.Minute, "what was placed after the backup to run", func() bool {
		e, err := api.Execution(t.Context(), stray, 0)
		return err == nil && e.Status == compute.StatusRunning
	})

	first := c.Nodes[0]
	if _, err := repair.RestoreBackup(backup, first.Config.DataDir, false, time.Now()); err == nil ||
		!strings.Contains(err.Error(), "stop it first") {
		t.Errorf("with the node running: %v", err)
	}
	for _, p := range c.Nodes {
		p.Kill()
	}
	began := time.Now()
	plan, err := repair.RestoreBackup(backup, first.Config.DataDir, false, time.Now())
	if err != nil || plan.Done || plan.Ended != 1 || plan.Epoch != 1 {
		t.Fatalf("the plan is %+v, %v", plan, err)
	}
	if _, err := os.Stat(filepath.Join(first.Config.DataDir, "quarantine")); !os.IsNotExist(err) {
		t.Errorf("the plan has changed something: %v", err)
	}
	if r, err := repair.RestoreBackup(backup, first.Config.DataDir, true, time.Now()); err != nil || !r.Done {
		t.Fatalf("restored: %+v, %v", r, err)
	}
	first.Start()
	e := mustFinish(t, api, live)
	t.Logf("restored and served after %s", time.Since(began).Round(time.Millisecond))
	if e.Status != compute.StatusSystemFailure || e.Billed == nil || *e.Billed != 0 {
		t.Errorf("what ran in the backup is %v, billed %v", e.Status, e.Billed)
	}
	if e := mustFinish(t, api, done); e.Status != compute.StatusCompleted {
		t.Errorf("what had ended is %v", e.Status)
	}
	if _, err := api.Execution(t.Context(), after, 0); client.CodeOf(err) == "" {
		t.Errorf("what came after the backup: %v", err)
	}
	nodetest.Eventually(t, time.Minute, "people to sign in again", func() bool {
		_, err := root.WithToken("").Login(t.Context(), account.Email, account.Password)
		return err == nil
	})
	if !hasProcess(t, stray) { // Its node was killed; what supervises it was not.
		t.Error("what was placed after the backup does not execute: nothing is shown")
	}
	for _, p := range c.Nodes[1:] {
		p.Start()
	}
	mustVoters(t, root, 3)
	for _, p := range c.Nodes[1:] {
		mustCameInEmpty(t, p)
	}
	mustVanish(t, c, api, stray)
	at := nodetest.MustClient(t, account.Key, c.Nodes[2].URL)
	if e := mustFinish(t, at, mustBegin(t, at, "t4", "print(3)")); e.Status != compute.StatusCompleted {
		t.Errorf("in the new life: %v (%v)", e.Status, e.StatusDetails)
	}
	mustBalance(t, at)
}

// TestRecoverDrill is the drill of docs/operations.md: two of three voters are
// gone for good. Everything that the third had is kept.
func TestRecoverDrill(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	survivor, lost, late := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	root := nodetest.MustClient(t, c.RootToken, survivor.URL)
	mustVoters(t, root, 3)
	api := nodetest.MustClient(t, account.Key, survivor.URL)
	var kept []compute.ExecutionID
	for range 5 {
		kept = append(kept, mustBegin(t, api, "h100", "print(1)"))
	}
	for _, id := range kept {
		mustFinish(t, api, id) // Read on the survivor: it has them.
	}
	lost.Kill()
	late.Kill()
	if err := os.RemoveAll(lost.Config.DataDir); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	survivor.Kill()
	dir := survivor.Config.DataDir
	plan, err := repair.Recover(dir, nil, false)
	if err != nil || plan.Done || len(plan.Servers) != 3 || plan.Epoch != 1 {
		t.Fatalf("the plan is %+v, %v", plan, err)
	}
	for _, do := range []bool{false, true} {
		if _, err := repair.Recover(dir, []compute.NodeID{{}}, do); err == nil {
			t.Errorf("with voters that are none (%t): no error", do)
		}
	}
	if _, err := repair.Recover(dir, nil, true); err == nil || !strings.Contains(err.Error(), "Name the voters") {
		t.Errorf("without voters: %v", err)
	}
	other, err := compute.ParseNodeID(late.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repair.Recover(dir, []compute.NodeID{other}, true); err == nil || !strings.Contains(err.Error(), "not among the voters") {
		t.Errorf("without itself: %v", err)
	}
	r, err := repair.Recover(dir, []compute.NodeID{plan.Node}, true)
	if err != nil || !r.Done || r.Last != plan.Last || len(r.Servers) != 1 {
		t.Fatalf("recovered: %+v, %v", r, err)
	}
	recovered := compute.InstantOf(time.Now())
	survivor.Start()
	afterwards := mustBegin(t, api, "h100", "print(2)")
	t.Logf("a write was acknowledged %s after the loss", time.Since(began).Round(time.Millisecond))
	for _, id := range kept {
		if e, err := api.Execution(t.Context(), id, 0); err != nil || e.Status != compute.StatusCompleted {
			t.Errorf("an execution is %v, %v", e.Status, err)
		}
	}
	late.Start() // It was not lost after all: it must not bring its life back.
	mustVoters(t, root, 2)
	mustCameInEmpty(t, late)
	e := mustFinish(t, api, afterwards)
	if rest := attempt.Lease + attempt.Margin; len(e.Attempts) != 1 || e.Attempts[0].PlacedAt.Sub(recovered) < rest {
		t.Errorf("recovered at %s, placed as %+v: code of the life before has %s to end", recovered, e.Attempts, rest)
	}
	mustBalance(t, nodetest.MustClient(t, account.Key, late.URL))
}

// mustVanish fails unless an execution that the state does not know is ended where
// it executes, and is nowhere counted.
func mustVanish(t *testing.T, c *nodetest.Processes, api *client.Client, id compute.ExecutionID) {
	t.Helper()
	nodetest.Eventually(t, time.Minute, "what is not in the state to be ended", func() bool { return !hasProcess(t, id) })
	nodetest.Eventually(t, time.Minute, "nobody to have a word of it left", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(p *nodetest.Process) bool { return !hasReported(t, p, id) })
	})
	if _, err := api.Execution(t.Context(), id, 0); client.CodeOf(err) == "" {
		t.Errorf("it is in the state: %v", err)
	}
	history, err := api.History(t.Context(), client.HistoryQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range history.Executions {
		if e.ExecutionID == id {
			t.Errorf("it is in the history: %+v", e)
		}
	}
	ledger, err := api.Ledger(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range ledger.Entries {
		if line.ExecutionID != nil && *line.ExecutionID == id {
			t.Errorf("it is in the ledger: %+v", line)
		}
	}
}

// hasProcess reports whether a process of this machine supervises an execution:
// each has its directory, which the execution names, among its arguments.
func hasProcess(t *testing.T, id compute.ExecutionID) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), id.String()) {
			return true
		}
	}
	return false
}
