package node_test

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// diskBytes is the size of a small disk: room for a log and a ballast.
const diskBytes = 192 << 20

// TestFullDisks fills the disks of all nodes to the last byte under an execution
// that runs, and gives the room back.
func TestFullDisks(t *testing.T) {
	t.Parallel() // It mostly waits.
	var dirs []string
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		dirs = append(dirs, nodetest.MustDisk(t, diskBytes))
		cfg.DataDir = filepath.Join(dirs[len(dirs)-1], "data")
	})
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	endless := client.Start{Code: "import time\nwhile True: time.sleep(1)", ExecutionType: "t4", Timeout: 600}
	started, err := api.Submit(t.Context(), endless)
	if err != nil {
		t.Fatal(err)
	}
	// One that began on a full disk may find no space for its files.
	mustReach(t, api, started.ExecutionID, "the first one to run", func(e wire.Execution) bool { return e.Status == compute.StatusRunning })
	var give []func()
	for _, dir := range dirs {
		give = append(give, nodetest.MustFill(t, dir))
	}
	var refused error
	submitted := []compute.ExecutionID{started.ExecutionID}
	nodetest.Eventually(t, endWait, "a submit to be refused", func() bool {
		more, err := api.Submit(t.Context(), endless)
		if err == nil {
			submitted = append(submitted, more.ExecutionID)
		}
		refused = err
		return client.CodeOf(err) == "no_space"
	})
	if text := refused.Error(); !strings.Contains(text, "full") || !strings.Contains(text, "free some space") {
		t.Errorf("the refusal says %q", text)
	}
	for _, n := range c.Nodes { // Reads and stops still work everywhere.
		_, err := nodetest.MustClient(t, account.Key, n.URL()).Execution(t.Context(), started.ExecutionID, 0)
		if err != nil {
			t.Errorf("read from %s: %v", n.Config.Name, err)
		}
	}
	for i, id := range submitted {
		err := api.Stop(t.Context(), id)
		// An execution that began on a full disk may have found no space for its files.
		if err != nil && (i == 0 || client.CodeOf(err) != "already_ended") {
			t.Errorf("stop: %v", err)
		}
	}
	for _, free := range give {
		free()
	}
	for i, id := range submitted {
		e := mustFinish(t, api, id)
		if e.Status != compute.StatusCancelled && (i == 0 || !e.Status.Terminal()) {
			t.Errorf("it ends %v: %+v", e.Status, e)
		}
	}
	var after wire.Started
	nodetest.Eventually(t, endWait, "a submit to be accepted", func() bool {
		after, err = api.Submit(t.Context(), client.Start{Code: "print(1)", ExecutionType: "t4", Timeout: 60})
		return err == nil
	})
	if e := mustFinish(t, api, after.ExecutionID); e.Status != compute.StatusCompleted {
		t.Errorf("after there was room again: %v", e.Status)
	}
	mustBalance(t, api)
}
