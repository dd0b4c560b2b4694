package raftconf

import (
	"slices"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// Server is a server in the Raft configuration.
type Server struct {
	ID      compute.NodeID
	Address string // host:port of its cluster port, as last heard.
	Voter   bool
}

// ServerID returns the Raft id of a node.
func ServerID(id compute.NodeID) raft.ServerID { return raft.ServerID(id.String()) }

// NodeOf returns the node with a Raft id, or the zero id when it is none.
func NodeOf(id raft.ServerID) compute.NodeID {
	node, err := compute.ParseNodeID(string(id))
	if err != nil {
		return compute.NodeID{}
	}
	return node
}

// Contains reports whether a node is one of the servers.
func Contains(servers []raft.Server, id compute.NodeID) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == ServerID(id) })
}

// Votes reports whether a node is one of the servers and a voter.
func Votes(servers []raft.Server, id compute.NodeID) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool {
		return s.ID == ServerID(id) && s.Suffrage == raft.Voter
	})
}

// Quorum returns how many of the voters decide.
func Quorum(voters int) int { return voters/2 + 1 }
