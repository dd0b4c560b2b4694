package gossip

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"berth/compute"
)

// delegate is Gossip as memberlist calls it. Its methods must not block nor
// call memberlist, which holds its lock.
type delegate Gossip

// NodeMeta returns the meta of this node.
func (d *delegate) NodeMeta(limit int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	meta := d.cfg.Codec.Marshal(d.own)
	if len(meta) > limit {
		// The limits of cluster.Config keep it shorter; memberlist would panic.
		d.cfg.Logger.Error("gossip meta too long")
		return nil
	}
	return meta
}

// NotifyMsg ignores user messages: none are sent.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts sends no user messages.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns this node's inventory.
func (d *delegate) LocalState(bool) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.body
}

// MergeRemoteState keeps another node's inventory when it is the one that the
// node announces.
func (d *delegate) MergeRemoteState(body []byte, _ bool) {
	if len(body) == 0 || len(body) > MaxInventory {
		return
	}
	var inv compute.Inventory
	if err := d.cfg.Codec.Unmarshal(body, &inv); err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.members[inv.Node]; ok && m.InventoryHash == hashOf(body) {
		d.bodies[inv.Node] = inv
		(*Gossip)(d).signal()
	}
}

// NotifyAlive refuses nodes that the cluster does not know or has removed.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	m, err := d.member(n, true)
	if err != nil {
		return err
	}
	if m.ID == d.id.Node {
		return nil
	}
	removed, known := d.cfg.Lookup(m.ID)
	if !removed && !known {
		(*Gossip)(d).noteRefused()
	}
	if removed || !known {
		return fmt.Errorf("%s: %w", m.ID, errStranger)
	}
	return nil
}

// NotifyJoin records a node that has appeared.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.note(n, true) }

// NotifyUpdate records a node whose meta changed.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.note(n, true) }

// NotifyLeave records a node that left or fell silent.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.note(n, false) }

// NotifyConflict reports two nodes with one name: a node came back at another
// address, a data directory was copied, or someone forges. A peer that is dialled
// there must still show the node's certificate.
func (d *delegate) NotifyConflict(_, other *memberlist.Node) {
	m, err := d.member(other, true)
	if err == nil && (*Gossip)(d).noteClaim(m.ID, m.RPC, time.Now()) { //nolint:forbidigo // A stopwatch.
		d.cfg.Logger.Warn("node announced at a second address", "node", m.ID, "address", m.RPC, "hint",
			"if the node moved there, this ends within a minute; if not, two processes run with copies of one data "+
				"directory: stop the wrong one, and give it a data directory and a join token of its own")
	}
}

func (d *delegate) note(n *memberlist.Node, alive bool) {
	if m, err := d.member(n, alive); err == nil {
		(*Gossip)(d).noteMember(m)
	}
}

// member decodes a node of memberlist.
func (d *delegate) member(n *memberlist.Node, alive bool) (Member, error) {
	id, err := compute.ParseNodeID(n.Name)
	if err != nil {
		return Member{}, fmt.Errorf("%q: %w", n.Name, errStranger)
	}
	var meta meta
	if err := d.cfg.Codec.Unmarshal(n.Meta, &meta); err != nil {
		return Member{}, fmt.Errorf("%s: %w: %w", id, errStranger, err)
	}
	return Member{
		ID: id, Name: meta.Name, Role: meta.Role, RPC: meta.RPC, Gossip: n.Address(), API: meta.API,
		Metrics: meta.Metrics, Version: meta.Version, InventoryVersion: meta.InventoryVersion,
		InventoryHash: meta.InventoryHash, Alive: alive,
	}, nil
}
