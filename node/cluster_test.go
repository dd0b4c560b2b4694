package node_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
// know within the five seconds that are promised.
func TestUnpluggedGPU(t *testing.T) {
	list := filepath.Join(t.TempDir(), "gpus.yaml")
	mustWriteGPUs(t, list, 2)
	c := nodetest.NewWith(t, 3, func(i int, cfg *nodetest.NodeConfig) {
		if i == 2 {
			cfg.GPUs.Source, cfg.GPUs.File, cfg.GPUs.Simulated = "file", list, nil
		}
	})
	mustKnow(t, c, 2, 2, time.Minute)
	mustWriteGPUs(t, list, 1)
	mustKnow(t, c, 2, 1, 15*time.Second) // The promise is 5 s, of a machine that is not busy with tests.
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
func mustKnow(t *testing.T, c *nodetest.Cluster, i, n int, limit time.Duration) {
	t.Helper()
	nodetest.Eventually(t, limit, fmt.Sprintf("%d devices everywhere", n), func() bool {
		for _, at := range c.Nodes {
			record, ok := at.Peer().View().Node(c.Nodes[i].ID())
			if !ok || len(record.GPUs) != n {
				return false
			}
		}
		return true
	})
}

// TestLargeBundle submits more code than a command carries to a follower. Every
// node sweeps its blobs while the execution waits. It is executed all the same,
// on a node that need not have the blob.
func TestLargeBundle(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	noise := make([]byte, 64<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(hex.EncodeToString(noise)))
	code := fmt.Sprintf("import hashlib\nprint(hashlib.sha256(b'%x').hexdigest())\n", noise)
	for _, gpu := range []string{"h100", "a100", "t4"} { // One on each node.
		started, err := api.Submit(t.Context(), client.Start{Code: code, ExecutionType: gpu, Timeout: 120})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes {
			n.Peer().SweepBlobs(t.Context(), 0)
		}
		if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted || e.Stdout != fmt.Sprintf("%x\n", sum) {
			t.Errorf("%s: got %v and %q, want the sum of the noise", gpu, e.Status, e.Stdout)
		}
	}
}
