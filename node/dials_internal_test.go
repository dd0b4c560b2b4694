package node

import (
	"errors"
	"testing"

	"berth/cluster"
	"berth/compute"
	"berth/node/router"
)

// TestDialsAreBounded refuses more connections to the ports of one node than there may be, and
// not those to another node.
func TestDialsAreBounded(t *testing.T) {
	var d dials
	one, two := compute.NodeID{UUID: compute.UUID{1}}, compute.NodeID{UUID: compute.UUID{2}}
	for n := range maxDials {
		if !d.take(one) {
			t.Fatalf("connection %d is refused", n)
		}
	}
	if d.take(one) || !d.take(two) {
		t.Error("one node has more connections than it may, or another one has none")
	}
	d.give(one)
	if !d.take(one) || d.take(one) {
		t.Error("the place of a connection that has ended is not given again, or twice")
	}
	n := &Node{cluster: new(cluster.Cluster), dials: dials{open: map[compute.NodeID]int{one: maxDials}}}
	if _, err := (servicePorts{n}).dial(t.Context(), router.Replica{Node: one}); !errors.Is(err, router.ErrManyConnections) {
		t.Errorf("a connection more: %v", err)
	}
	d.give(two)
	if _, known := d.open[two]; known {
		t.Error("a node without connections is counted")
	}
}
