package dev

import (
	"context"
	"fmt"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/devstate"
	"berth/compute"
)

// stateFile describes the running cluster of a directory.
const stateFile = devstate.File

// The content of cluster.json: see package devstate.
type (
	// State is a running cluster.
	State = devstate.State
	// Node is one of its nodes.
	Node = devstate.Node
	// GPU is a GPU of a node.
	GPU = devstate.GPU
)

// ReadState returns the state of the running cluster of dir. The error is
// fs.ErrNotExist if none runs.
func ReadState(dir string) (State, error) { return devstate.Read(dir) }

// seen is the cluster's report about itself.
type seen struct {
	nodes  map[string]wire.Node // By name.
	voters int
	leader compute.NodeID
}

// query returns the nodes and the peers of the cluster.
func query(ctx context.Context, admin *client.Client) (seen, error) {
	nodes, err := admin.Nodes(ctx)
	if err != nil {
		return seen{}, fmt.Errorf("list nodes: %w", err)
	}
	peers, err := admin.Peers(ctx)
	if err != nil {
		return seen{}, fmt.Errorf("list peers: %w", err)
	}
	s := seen{nodes: map[string]wire.Node{}}
	for _, n := range nodes {
		s.nodes[n.Name] = n
	}
	for _, p := range peers {
		if p.Voter {
			s.voters++
		}
		if p.Leader {
			s.leader = p.ID
		}
	}
	return s, nil
}

// missing describes how the report lacks a planned node or its GPUs; "" if it
// lacks neither.
func (s seen) missing(planned plannedNode) string {
	n, found := s.nodes[planned.Name]
	switch {
	case !found:
		return "has not joined"
	case n.State != compute.NodeUp:
		return "is " + n.State.String()
	case len(n.GPUs) != planned.gpuCount():
		return fmt.Sprintf("reports %d GPUs, not %d", len(n.GPUs), planned.gpuCount())
	}
	return ""
}

// state returns the content of cluster.json without the processes. ok is false
// while the cluster lacks a node or has no leader.
func (s seen) state(p *plan) (out State, ok bool) {
	out = State{
		ClusterID: p.ClusterID, RootToken: p.RootToken, Leader: s.leader,
		Email: p.Email, Password: p.Password, OrgSlug: p.OrgSlug, APIKey: p.APIKey,
	}
	ok = !s.leader.IsZero()
	for _, planned := range p.members() {
		n, found := s.nodes[planned.Name]
		ok = ok && found
		out.Nodes = append(out.Nodes, nodeOf(n))
	}
	return out, ok
}

func nodeOf(n wire.Node) Node {
	out := Node{ID: n.ID, API: n.API, RPC: n.RPC, Gossip: n.Gossip, Metrics: n.Metrics, GPUs: []GPU{}}
	for _, g := range n.GPUs {
		out.GPUs = append(out.GPUs, GPU{ID: g.ID, Type: g.Type, VRAMMiB: g.VRAMMiB, Simulated: g.Simulated})
	}
	return out
}
