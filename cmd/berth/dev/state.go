package dev

import (
	"path/filepath"
	"reflect"

	"berth/api/client"
	"berth/compute"
)

// stateFile tells others about the cluster that runs in a directory.
const stateFile = "cluster.json"

// State is what cluster.json holds: how to reach a running cluster, and as
// whom.
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

// ReadState returns the state of the cluster that runs in dir. The error is
// fs.ErrNotExist when none runs there.
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

// equal reports whether two states tell the same.
func (s State) equal(other State) bool { return reflect.DeepEqual(s, other) }

// describe returns the state of the nodes that plan names as the cluster
// reports them, and whether it reports all of them, up, and a leader.
func describe(p *plan, nodes client.Nodes) (State, bool) {
	s := State{
		ClusterID: nodes.ClusterID, RootToken: p.RootToken,
		Email: p.Email, Password: p.Password, OrgSlug: p.OrgSlug, APIKey: p.APIKey,
	}
	byName := map[string]client.Node{}
	for _, n := range nodes.Nodes {
		byName[n.Name] = n
		if n.Leader {
			s.Leader = n.ID
		}
	}
	complete := !s.Leader.IsZero()
	for _, planned := range p.Nodes {
		n, found := byName[planned.Name]
		complete = complete && found && n.State == compute.NodeUp && len(n.GPUs) == planned.gpuCount()
		s.Nodes = append(s.Nodes, nodeOf(n))
	}
	return s, complete
}

func nodeOf(n client.Node) Node {
	out := Node{ID: n.ID, API: n.API, RPC: n.RPC, Gossip: n.Gossip, Metrics: n.Metrics, GPUs: []GPU{}}
	for _, g := range n.GPUs {
		out.GPUs = append(out.GPUs, GPU{ID: g.ID, Type: g.Type, VRAMMiB: g.VRAMMiB, Simulated: g.Simulated})
	}
	return out
}
