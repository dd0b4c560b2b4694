package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"berth/cluster/raftconf"
	"berth/compute"
)

// gossipDelegate is gossip as memberlist calls it. Its methods must not block
// nor call memberlist, which holds its lock.
type gossipDelegate gossip

// NodeMeta returns the meta of this node.
func (d *gossipDelegate) NodeMeta(limit int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	meta := d.c.codec.Marshal(d.own)
	if len(meta) > limit {
		// The limits of Config keep it shorter; memberlist would panic.
		d.c.logger.Error("meta is too long")
		return nil
	}
	return meta
}

// NotifyMsg ignores user messages: none are sent.
func (d *gossipDelegate) NotifyMsg([]byte) {}

// GetBroadcasts sends no user messages.
func (d *gossipDelegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns this node's inventory.
func (d *gossipDelegate) LocalState(bool) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.body
}

// MergeRemoteState keeps another node's inventory when it is the one that the
// node announces.
func (d *gossipDelegate) MergeRemoteState(body []byte, _ bool) {
	if len(body) == 0 || len(body) > MaxInventory {
		return
	}
	var inv compute.Inventory
	if err := d.c.codec.Unmarshal(body, &inv); err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.members[inv.Node]; ok && m.InventoryHash == hashOf(body) {
		d.bodies[inv.Node] = inv
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// NotifyAlive rejects nodes that the cluster does not know, and those that it
// removed.
func (d *gossipDelegate) NotifyAlive(n *memberlist.Node) error {
	m, err := d.member(n, true)
	if err != nil {
		return err
	}
	if m.ID == d.c.id {
		return nil
	}
	_, removed, known := d.c.cfg.Directory.Node(m.ID)
	for _, s := range d.c.servers() {
		known = known || raftconf.NodeOf(s.ID) == m.ID
	}
	if !removed && !known {
		(*gossip)(d).turnAway()
	}
	if removed || !known {
		return fmt.Errorf("%s: %w", m.ID, errStranger)
	}
	return nil
}

// NotifyJoin notes a node that came.
func (d *gossipDelegate) NotifyJoin(n *memberlist.Node) { d.seen(n, true) }

// NotifyUpdate notes a node whose meta changed.
func (d *gossipDelegate) NotifyUpdate(n *memberlist.Node) { d.seen(n, true) }

// NotifyLeave notes a node that went or is not heard of any more.
func (d *gossipDelegate) NotifyLeave(n *memberlist.Node) { d.seen(n, false) }

// NotifyConflict hears of two nodes with one name: a node came back at another
// address, a data directory was copied, or someone forges. Whoever is dialled
// there must show the node's certificate.
func (d *gossipDelegate) NotifyConflict(_, other *memberlist.Node) {
	m, err := d.member(other, true)
	if err == nil && (*gossip)(d).noteClaim(m.ID, m.RPC, time.Now()) { //nolint:forbidigo // A stopwatch.
		d.c.logger.Warn("a node is said to be at another address, too", "node", m.ID, "err", fmt.Sprintf(
			"%s: if it came back there, this ends within a minute; if not, two processes run with copies of its data: end the "+
				"one that is not that node, and give it a data directory and a join token of its own", m.RPC))
	}
}

func (d *gossipDelegate) seen(n *memberlist.Node, alive bool) {
	if m, err := d.member(n, alive); err == nil {
		(*gossip)(d).note(m)
	}
}

// member reads what memberlist knows of a node.
func (d *gossipDelegate) member(n *memberlist.Node, alive bool) (Member, error) {
	id, err := compute.ParseNodeID(n.Name)
	if err != nil {
		return Member{}, fmt.Errorf("%q: %w", n.Name, errStranger)
	}
	var meta gossipMeta
	if err := d.c.codec.Unmarshal(n.Meta, &meta); err != nil {
		return Member{}, fmt.Errorf("%s: %w: %w", id, errStranger, err)
	}
	return Member{
		ID: id, Name: meta.Name, Role: meta.Role, RPC: meta.RPC, Gossip: n.Address(), API: meta.API,
		Metrics: meta.Metrics, Version: meta.Version, InventoryVersion: meta.InventoryVersion,
		InventoryHash: meta.InventoryHash, Alive: alive,
	}, nil
}
