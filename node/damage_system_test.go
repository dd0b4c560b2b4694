package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// TestDamagedServerHealsUnderWork loses the log of a server that executes. It
// comes in empty, what it executes goes on to its end, and it votes again.
func TestDamagedServerHealsUnderWork(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	api := nodetest.MustClient(t, account.Key, c.Nodes[0].URL)
	damaged := c.Nodes[2] // The node with the t4.
	live := mustBegin(t, api, "t4", "import time\ntime.sleep(5)\nprint('to its end')\n")
	nodetest.Eventually(t, time.Minute, "the execution to run", func() bool {
		e, err := api.Execution(t.Context(), live, 0)
		return err == nil && e.Status == compute.StatusRunning
	})
	damaged.Kill()
	if err := os.Truncate(filepath.Join(damaged.Config.DataDir, "raft", "raft.db"), 4096); err != nil {
		t.Fatal(err)
	}
	damaged.Start()
	if e := mustFinish(t, api, live); e.Status != compute.StatusCompleted {
		t.Errorf("what it executed is %v (%v)", e.Status, e.StatusDetails)
	}
	mustVoters(t, root, 3)
	mustCameInEmpty(t, damaged)
	at := nodetest.MustClient(t, account.Key, damaged.URL)
	e, err := at.Execution(t.Context(), live, 0)
	if err != nil || !strings.Contains(e.Stdout, "to its end") {
		t.Errorf("read from the server that was damaged: %q, %v", e.Stdout, err)
	}
	if e := mustFinish(t, at, mustBegin(t, at, "t4", "print(3)")); e.Status != compute.StatusCompleted {
		t.Errorf("afterwards it executes: %v (%v)", e.Status, e.StatusDetails)
	}
	mustBalance(t, at)
}

// mustBegin submits code on a hardware profile.
func mustBegin(t *testing.T, api *client.Client, profile, code string) compute.ExecutionID {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{Code: code, Timeout: 400, ExecutionType: profile})
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

// mustCameInEmpty fails unless the server set a replica aside.
func mustCameInEmpty(t *testing.T, p *nodetest.Process) {
	t.Helper()
	aside, err := filepath.Glob(filepath.Join(p.Config.DataDir, "quarantine", "*", "raft", "raft.db"))
	if err != nil || len(aside) != 1 {
		t.Errorf("%s has set aside %v, %v", p.Config.Name, aside, err)
	}
}
