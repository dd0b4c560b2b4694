package replication

import (
	"berth/compute"
	"berth/fsm"
	"berth/node/storage"
)

// Nodes returns the nodes that store blobs: the servers. A drained server may
// soon be removed.
func Nodes(view *fsm.View) []storage.Node {
	var nodes []storage.Node
	for node := range view.Nodes() {
		if node.Role != compute.RoleServer {
			continue
		}
		nodes = append(nodes, storage.Node{ID: node.ID, Up: node.State == compute.NodeUp, Leaving: node.Drained})
	}
	return nodes
}
