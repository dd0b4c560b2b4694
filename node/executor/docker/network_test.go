package docker_test

import (
	"net/netip"
	"testing"

	"berth/node/executor/docker"
)

// TestNetworkOfASlot makes the network of a slot for one node after the other, as on a
// machine where a node was killed, or where several share the engine.
func TestNetworkOfASlot(t *testing.T) {
	subnet := netip.MustParsePrefix("198.19.255.240/28")
	first := newEngine(t, func(c *docker.Config) { c.Node = "first" })
	second := newEngine(t, func(c *docker.Config) { c.Node = "second" })
	for range 2 {
		for link, e := range map[string]*docker.Engine{"btest01-_fff": first, "btest02-_fff": second} {
			name, err := e.Network(t.Context(), docker.Bridge{Slot: 4095, Link: link, Subnet: subnet})
			if err != nil || name == "" {
				t.Fatalf("network %q, %v", name, err)
			}
			again, err := e.Network(t.Context(), docker.Bridge{Slot: 4095, Link: link, Subnet: subnet})
			if err != nil || again != name {
				t.Errorf("again it is %q, %v", again, err)
			}
		}
	}
	for _, e := range []*docker.Engine{first, second} {
		if err := e.RemoveIdle(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
