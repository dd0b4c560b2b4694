package devstate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"berth/compute"
)

// File describes the running cluster of a directory, below it.
const File = "cluster.json"

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

// Read returns the state of the running cluster of dir. The error is
// fs.ErrNotExist if none runs.
func Read(dir string) (State, error) {
	path := filepath.Join(dir, File)
	data, err := os.ReadFile(path)
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
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
