package node_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/node/nodetest"
)

// TestRemovalAsksTheVoters holds that the API removes a node only while the
// others go on without it, and once they have all code.
func TestRemovalAsksTheVoters(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	root := nodetest.MustClient(t, c.RootToken, c.Leader().URL())
	mustVoters(t, root, 3)
	mustHoldCode(t, c, 8)
	dead := c.Follower()
	dead.Stop()
	for _, n := range c.Nodes {
		if n == dead {
			continue
		}
		err := root.RemoveNode(t.Context(), n.ID())
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Status != http.StatusConflict || e.Code != "quorum_lost" ||
			!strings.Contains(e.Error(), "bring "+dead.Config.Name+" back") ||
			!strings.Contains(e.Error(), "1 of 2 voters") {
			t.Errorf("%s: %v", n.Config.Name, err)
		}
	}
	nodetest.Eventually(t, time.Minute, "the removal", func() bool {
		err := root.RemoveNode(t.Context(), dead.ID())
		if e, ok := errors.AsType[*client.Error](err); err != nil && (!ok || e.Code != "copies_missing") {
			t.Fatal(err)
		}
		return err == nil
	})
	for _, n := range c.Nodes {
		if has := blobsIn(t, filepath.Join(n.Config.DataDir, "blobs")); n != dead && len(has) < 8 {
			t.Errorf("%s has %d of 8 bundles", n.Config.Name, len(has))
		}
	}
	nodetest.Eventually(t, time.Minute, "the configuration without it", func() bool {
		peers, err := root.Peers(t.Context())
		return err == nil && len(peers) == 2
	})
}

// mustHoldCode has n executions wait whose code is in the blob stores.
func mustHoldCode(t *testing.T, c *nodetest.Cluster, n int) {
	t.Helper()
	api := nodetest.MustClient(t, c.MustAccount("acme").Key, c.Leader().URL())
	for i := range n {
		noise := make([]byte, 20<<10)
		_, _ = rand.Read(noise) // It never fails.
		start := client.Start{Code: fmt.Sprintf("# %d %x\n", i, noise), Timeout: 60}
		if _, err := api.Submit(t.Context(), start); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLastServerStays(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 1)
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL())
	err := root.RemoveNode(t.Context(), c.Nodes[0].ID())
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusConflict || e.Code != "last_server" {
		t.Errorf("got %v", err)
	}
}
