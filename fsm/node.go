package fsm

import (
	"berth/compute"
	"berth/fsm/store"
)

// changesKept is how many changes of nodes are remembered at least.
const changesKept = 4096

// nodeRecords is the table of nodes with what changed in it last. The memory is
// no part of the state: it makes reading faster, and is empty after a restore.
type nodeRecords struct {
	store.Records[compute.NodeID, compute.Node]

	origin  *int             // One for each life of the table.
	changed []compute.NodeID // In the order of change; views share the array.
	dropped uint64           // How many changes came before those.
	whole   uint64           // A node came or went with this change.
}

func newNodeRecords() nodeRecords {
	return nodeRecords{
		Records: store.NewRecords(byNode, func(n *compute.Node) compute.NodeID { return n.ID }),
		origin:  new(int),
	}
}

// put stores n.
func (r *nodeRecords) put(n *compute.Node) {
	old := r.Records.Put(n)
	r.note(n.ID, old == nil)
}

// drop removes the node id.
func (r *nodeRecords) drop(id compute.NodeID) {
	r.Records.Drop(id)
	r.note(id, true)
}

// note remembers a change. Views have the front of the same array, which is
// never written again; when it is long, its end moves to a new one.
func (r *nodeRecords) note(id compute.NodeID, whole bool) {
	if len(r.changed) >= 2*changesKept {
		kept := r.changed[len(r.changed)-changesKept:]
		r.dropped += uint64(len(r.changed) - changesKept)
		r.changed = append(make([]compute.NodeID, 0, 2*changesKept), kept...)
	}
	r.changed = append(r.changed, id)
	if whole {
		r.whole = r.dropped + uint64(len(r.changed))
	}
}

// NodesChanged returns which nodes have another record than at a revision that
// a view has returned, some of them more than once, and the revision of v. It
// is not complete when a node came or went since, or when that is too long
// ago; the zero revision is always.
func (v *nodeTables) NodesChanged(
	since compute.Revision,
) (changed []compute.NodeID, now compute.Revision, complete bool) {
	r := &v.nodes
	now = compute.Revision{Origin: r.origin, Change: r.dropped + uint64(len(r.changed))}
	if since.Origin != any(r.origin) || since.Change < max(r.dropped, r.whole) || since.Change > now.Change {
		return nil, now, false
	}
	return r.changed[since.Change-r.dropped:], now, true
}
