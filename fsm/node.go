package fsm

import (
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// changesKept is how many changes of nodes are remembered at least.
const changesKept = 4096

// nodeRecords is the table of nodes with its last changes.
type nodeRecords struct {
	store.Records[compute.NodeID, compute.Node]

	changes changeLog[compute.NodeID]
	whole   uint64 // A node came or went with this change.
}

func newNodeRecords() nodeRecords {
	return nodeRecords{
		Records: store.NewRecords(byNode, func(n *compute.Node) compute.NodeID { return n.ID }),
		changes: newChangeLog[compute.NodeID](changesKept),
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

// note remembers a change.
func (r *nodeRecords) note(id compute.NodeID, whole bool) {
	if change := r.changes.note(id); whole {
		r.whole = change
	}
}

// NodesChanged returns which nodes have another record than at a revision that
// a view has returned, some of them more than once, and the revision of v. It
// is not complete when a node came or went since, or when that is too long
// ago; the zero revision is always.
func (v *nodeTables) NodesChanged(
	since compute.Revision,
) (changed []compute.NodeID, now compute.Revision, complete bool) {
	return v.nodes.changes.since(since, v.nodes.whole)
}

// Show returns a node with its live work.
func (v *View) Show(n *compute.Node) command.ShownNode {
	shown := command.ShownNode{Node: *n}
	for _, w := range v.Work(n.ID) {
		shown.Live++
		if w.Stopping() {
			shown.Leaving++
		}
	}
	return shown
}
