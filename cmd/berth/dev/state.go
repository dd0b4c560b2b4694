package dev

import (
	"context"
	"fmt"
	"path/filepath"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// stateFile describes the running cluster of a directory.
const stateFile = "cluster.json"

// State is the content of cluster.json: the addresses and the credentials of a
// running cluster.
type State struct {
	ClusterID compute.UUID   `json:"cluster_id"`
	Nodes     []Node         `json:"nodes"` // In the order of their names: n1, n2, ...
	Leader    compute.NodeID `json:"leader"`
	RootToken string         `json:"root_token"`
	Email     string         `json:"email"`
	Password  string         `json:"password"`
	OrgSlug   string         `json:"org_slug"`
	APIKey    string         `json:"api_key"`
}

// Node is one node of a running cluster.
type Node struct {
	ID      compute.NodeID `json:"id"`
	API     string         `json:"api"` // Full URL.
	RPC     string         `json:"rpc"`
	Gossip  string         `json:"gossip"`
	Metrics string         `json:"metrics"`
	PID     int            `json:"pid"` // 0 while its process is not running.
	GPUs    []GPU          `json:"gpus"`
}

// GPU is one device of a node.
type GPU struct {
	ID        compute.GPUID `json:"id"`
	Type      string        `json:"type"`
	VRAMMiB   int64         `json:"vram_mib"`
	Simulated bool          `json:"simulated"`
}

// ReadState returns the state of the running cluster of dir. The error is
// fs.ErrNotExist if none runs.
func ReadState(dir string) (State, error) {
	var s State
	err := readJSON(filepath.Join(dir, stateFile), &s)
	return s, err
}

// Addrs returns the API's URL of every node.
func (s State) Addrs() []string {
	addrs := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		addrs[i] = n.API
	}
	return addrs
}

// Followers returns the API's URL of every node but the leader.
func (s State) Followers() []string {
	var addrs []string
	for _, n := range s.Nodes {
		if n.ID != s.Leader {
			addrs = append(addrs, n.API)
		}
	}
	return addrs
}

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
