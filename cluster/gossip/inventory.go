package gossip

import (
	"context"

	"berth/cluster/rpc"
	"berth/compute"
)

// MaxInventory is how many bytes an encoded inventory may have.
const MaxInventory = 256 << 10

// SetInventory publishes this node's inventory: version and hash with every
// sign of life, the body with each full exchange and on request.
func (g *Gossip) SetInventory(inv compute.Inventory) error {
	inv.Node = g.id.Node
	body := g.cfg.Codec.Marshal(inv)
	if len(body) > MaxInventory {
		return compute.Errorf(compute.CodeTooLarge,
			"The inventory of %d bytes is over the limit of %d.", len(body), MaxInventory)
	}
	g.mu.Lock()
	g.body = body
	g.own.InventoryVersion, g.own.InventoryHash = inv.Version, hashOf(body)
	g.mu.Unlock()
	select {
	case g.publish <- struct{}{}:
	default: // A signal is waiting already.
	}
	return nil
}

// Inventory returns a node's gossiped inventory when it is the version that the
// node announces. It is a hint, like all of gossip.
func (g *Gossip) Inventory(node compute.NodeID) (compute.Inventory, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	inv, ok := g.bodies[node]
	return inv, ok && inv.Version == g.members[node].InventoryVersion
}

// HandleInventory answers another node's call for this node's inventory.
func (g *Gossip) HandleInventory(context.Context, rpc.Peer, []byte) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.body == nil {
		return nil, compute.Errorf(compute.CodeNotFound, "This node has published no inventory yet.")
	}
	return g.body, nil
}
