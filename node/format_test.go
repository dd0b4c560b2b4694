package node_test

import (
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/fsm/format"
	"berth/node/nodetest"
)

// TestRollingUpgrade restarts each node in turn as one that knows a newer format
// of the state. Commands of that format are refused, with the node that holds it up,
// until the last is there; then they work on every node. All of them are this
// program, configured with the format to claim: that an older program decodes
// what this one writes is not shown here.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewOld(t, 3, 1)
	grant := wire.NewQuota{Org: "acme", MaxConcurrent: 7}
	c.MustAccount("acme")
	refused := func(holds string) {
		t.Helper()
		_, err := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL()).SetQuota(t.Context(), grant)
		if client.CodeOf(err) != "upgrade_required" || !strings.Contains(err.Error(), holds) {
			t.Fatalf("a quota: %v, want upgrade_required that names %q", err, holds)
		}
		_, err = nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL()).ReleaseBrake(t.Context())
		if client.CodeOf(err) != "upgrade_required" || !strings.Contains(err.Error(), holds) {
			t.Fatalf("the brake: %v, want upgrade_required that names %q", err, holds)
		}
	}
	refused("n1 (test), n2 (test), n3 (test)")
	for i, n := range c.Nodes {
		n.Stop()
		n.Format = format.Newest
		n.Start()
		nodetest.Eventually(t, time.Minute, "the node's record to say so", func() bool {
			record, ok := c.Nodes[0].Peer().View().Node(n.ID())
			return ok && record.Format == format.Newest
		})
		if i == 1 {
			refused("remove, n3 (test)")
		}
	}
	for _, n := range c.Nodes {
		nodetest.Eventually(t, time.Minute, "the newer format", func() bool { return n.Peer().View().Format() == format.Newest })
		root := nodetest.MustClient(t, c.RootToken, n.URL())
		if _, err := root.SetQuota(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		if b, err := root.ReleaseBrake(t.Context()); err != nil || b.Holds || b.ReleasedAt == nil {
			t.Fatalf("the brake: %+v, %v", b, err)
		}
	}
}
