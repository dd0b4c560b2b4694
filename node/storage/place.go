package storage

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"berth/compute"
)

// Node is one node that stores blobs.
type Node struct {
	ID      compute.NodeID
	Up      bool
	Leaving bool // It may soon be gone: a blob is put on other nodes where there are enough.
}

// owners returns nodes in the order of preference for the blob. The order is
// rendezvous hashing, so that a node that joins or leaves moves only its own
// share. Nodes that are down come last.
func owners(hash compute.Hash, nodes []Node) []Node {
	weights := make(map[compute.NodeID][]byte, len(nodes))
	for _, n := range nodes {
		sum := weight(hash, n.ID)
		weights[n.ID] = sum[:]
	}
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Node) int {
		if a.Up != b.Up {
			if a.Up {
				return -1
			}
			return 1
		}
		return bytes.Compare(weights[b.ID], weights[a.ID])
	})
	return sorted
}

// leavingLast orders nodes that stay before those that are about to leave.
func leavingLast(a, b Node) int {
	switch {
	case a.Leaving == b.Leaving:
		return 0
	case b.Leaving:
		return -1
	}
	return 1
}

// weight returns the rendezvous weight of a node for the blob.
func weight(hash compute.Hash, id compute.NodeID) [sha256.Size]byte {
	return sha256.Sum256(append(bytes.Clone(id.UUID[:]), hash[:]...))
}
