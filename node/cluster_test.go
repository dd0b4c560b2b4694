package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// TestUnpluggedGPU takes a device out of a static file and wants every node to
// know.
func TestUnpluggedGPU(t *testing.T) {
	list := filepath.Join(t.TempDir(), "gpus.yaml")
	mustWriteGPUs(t, list, 2)
	c := nodetest.NewWith(t, 3, func(i int, cfg *nodetest.NodeConfig) {
		if i == 2 {
			cfg.GPUs.Source, cfg.GPUs.File, cfg.GPUs.Simulated = "file", list, nil
		}
	})
	mustKnow(t, c, 2, 2)
	mustWriteGPUs(t, list, 1)
	mustKnow(t, c, 2, 1)
}

// mustWriteGPUs writes a list of n devices.
func mustWriteGPUs(t *testing.T, path string, n int) {
	t.Helper()
	text := ""
	for i := range n {
		text += fmt.Sprintf("- {id: GPU-%d, type: l4, model: NVIDIA L4, vram_mib: 24576}\n", i)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// mustKnow waits until every node's state has n devices on the i-th node.
func mustKnow(t *testing.T, c *nodetest.Cluster, i, n int) {
	t.Helper()
	nodetest.Eventually(t, time.Minute, fmt.Sprintf("%d devices everywhere", n), func() bool {
		for _, at := range c.Nodes {
			record, ok := at.Peer().View().Node(c.Nodes[i].ID())
			if !ok || len(record.GPUs) != n {
				return false
			}
		}
		return true
	})
}

// TestLostNode stops a node for longer than its execution's grace: the
// execution ends as a system failure and costs nothing, and when the node
// comes back its late word changes nothing.
func TestLostNode(t *testing.T) {
	c := nodetest.Start(t, 3)
	account := nodetest.MustAccount(t, c.Nodes[0].URL, c.RootToken, "acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	_, others := split(t, c, root)
	api := nodetest.MustClient(t, account.Key, others...)
	// Only one node has GPUs of this type, and it is not the leader's.
	victim := c.Nodes[2]
	if victim.URL != others[0] && victim.URL != others[1] {
		victim = c.Nodes[1]
	}
	profile := map[string]string{"n2": "a100", "n3": "t4"}[victim.Config.Name]
	grace := 1
	started, err := api.Submit(t.Context(), client.Start{
		Code: "import time\ntime.sleep(300)\n", ExecutionType: profile, Timeout: 400, DisconnectGrace: &grace,
	})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the execution to run", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && e.Status == compute.StatusRunning
	})
	victim.Kill()
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusSystemFailure || e.StatusDetails == nil || *e.StatusDetails != "node_lost" {
		t.Errorf("got %v (%v), want system_failure (node_lost)", e.Status, e.StatusDetails)
	}
	if e.Billed == nil || *e.Billed != 0 {
		t.Errorf("got billed %v, want 0", e.Billed)
	}
	victim.Start()
	mustBalance(t, api)
}
