package docker_test

import (
	"net/netip"
	"testing"

	"github.com/moby/moby/client"

	"berth/node/executor/docker"
	"berth/node/executor/docker/dockertest"
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
	wide := netip.MustParsePrefix("198.18.255.128/25") // As after an update of the node.
	name, err := first.Network(t.Context(), docker.Bridge{Slot: 4095, Link: "btest01-_fff", Subnet: wide})
	if err != nil {
		t.Fatal(err)
	}
	found, err := dockertest.Client(t).NetworkInspect(t.Context(), name, client.NetworkInspectOptions{})
	if err != nil || len(found.Network.IPAM.Config) != 1 || found.Network.IPAM.Config[0].Subnet != wide {
		t.Errorf("the network has the addresses %v, %v", found.Network.IPAM.Config, err)
	}
	for _, e := range []*docker.Engine{first, second} {
		if err := e.RemoveIdle(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
