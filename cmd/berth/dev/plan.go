package dev

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/compute"
	"berth/gpu"
)

// Files of the directory of a cluster and of the directory of a node in it.
const (
	planFile   = "dev.json"
	tokenFile  = "join_token"
	workerFile = "join_token_worker"
	configFile = "berth.yaml"

	// ProfilesToken is the file, in the directory of the cluster, with the token for
	// metrics and profiles.
	ProfilesToken = "profiles.token"
	logFile       = "node.log"
	dataDir       = "data"

	// In the data directory of the first node. The directory of the cluster has the root token too
	// once that was rotated: nobody but the caller of the rotation knows it.
	rootFile   = "root_token"
	recordFile = "node.json"
)

// plan is the content of dev.json: the settings that stay the same over all
// starts of a cluster.
type plan struct {
	Nodes     []plannedNode `json:"nodes"`
	Joined    bool          `json:"joined"` // Every node has become a member.
	ClusterID compute.UUID  `json:"cluster_id"`
	RootToken string        `json:"root_token,omitempty"`
	Email     string        `json:"email"`
	Password  string        `json:"password"`
	OrgSlug   string        `json:"org_slug"`
	APIKey    string        `json:"api_key,omitempty"`
	Settings  []Setting     `json:"settings,omitempty"` // Settings of every node.

	dir      string
	profiles bool // See Config.
}

// plannedNode is one node of the plan.
type plannedNode struct {
	Name   string `json:"name"`
	API    string `json:"api"` // host:port, as are RPC and Gossip.
	RPC    string `json:"rpc"`
	Gossip string `json:"gossip"`
	GPUs   string `json:"gpus,omitempty"` // As in "h100:2,l40s:4".
	Worker bool   `json:"worker,omitempty"`

	// Removed is set once the cluster has removed the node. The node is created
	// again if its data is missing at a start.
	Removed bool `json:"removed,omitempty"`
}

// gpuCount returns the number of GPUs that the node should report.
func (n *plannedNode) gpuCount() int {
	devices, err := gpu.ParseSimulated(n.Name, n.GPUs)
	if err != nil {
		return 0
	}
	return len(devices)
}

// loadPlan returns the plan of the directory, and creates it at the first
// start. Its nodes do not change. cfg may replace the GPUs.
func loadPlan(ctx context.Context, cfg Config) (*plan, error) {
	p := &plan{dir: cfg.Dir}
	err := readJSON(p.path(planFile), p)
	made := errors.Is(err, fs.ErrNotExist)
	if made {
		err = p.create(ctx, cmp.Or(cfg.Nodes, defaultNodes), cfg.Workers)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Nodes != 0 && cfg.Nodes != len(p.Nodes) {
		return nil, fmt.Errorf("%s holds a cluster of %d nodes: use --nodes %d or another --dir",
			cfg.Dir, len(p.Nodes), len(p.Nodes))
	}
	if workers := p.workers(); cfg.Workers != 0 && cfg.Workers != workers {
		return nil, fmt.Errorf("%s holds a cluster with %d workers: use --workers %d or another --dir",
			cfg.Dir, workers, workers)
	}
	if made || cfg.GPUs != "" {
		gpus, err := ParseGPUs(cfg.GPUs, len(p.Nodes))
		if err != nil {
			return nil, fmt.Errorf("--gpus: %w", err)
		}
		for i := range p.Nodes {
			p.Nodes[i].GPUs = gpus[p.Nodes[i].Name]
		}
	}
	changes, err := ParseSettings(cfg.Set)
	if err != nil {
		return nil, err
	}
	p.Settings = merged(p.Settings, changes)
	for i := range p.Nodes {
		p.Nodes[i].Removed = p.Nodes[i].Removed && p.hasData(p.Nodes[i])
	}
	return p, p.save()
}

// workers returns the number of nodes without state.
func (p *plan) workers() int {
	count := 0
	for _, n := range p.Nodes {
		if n.Worker {
			count++
		}
	}
	return count
}

// tokenOf returns the file with the token that the node joins with.
func (p *plan) tokenOf(n plannedNode) string {
	if n.Worker {
		return p.path(workerFile)
	}
	return p.path(tokenFile)
}

// members returns the nodes that the cluster has not removed.
func (p *plan) members() []plannedNode {
	return slices.DeleteFunc(slices.Clone(p.Nodes), func(n plannedNode) bool { return n.Removed })
}

// hasData reports whether the node was started before.
func (p *plan) hasData(n plannedNode) bool {
	_, err := os.Stat(p.path(n.Name, dataDir))
	return err == nil
}

// host returns the node that others join: at first the first one, which
// bootstraps the cluster, and later the first that is a member.
func (p *plan) host() plannedNode {
	if p.Joined {
		for _, n := range p.Nodes {
			if !n.Removed && !n.Worker && p.hasData(n) {
				return n
			}
		}
	}
	return p.Nodes[0]
}

// create fills the plan of a new cluster.
func (p *plan) create(ctx context.Context, nodes, workers int) error {
	ports, err := freePorts(ctx, 3*nodes)
	if err != nil {
		return err
	}
	for i := range nodes {
		p.Nodes = append(p.Nodes, plannedNode{
			Name: nodeName(i),
			API:  ports[3*i], RPC: ports[3*i+1], Gossip: ports[3*i+2],
			Worker: i >= nodes-workers,
		})
	}
	p.Email, p.OrgSlug, p.Password = "dev@berth.example", "dev", rand.Text()
	return nil
}

// path returns the path of a file or directory of the cluster.
func (p *plan) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// save writes dev.json.
func (p *plan) save() error { return writeJSON(p.path(planFile), p) }

// readBootstrap reads what the first node created when it bootstrapped the
// cluster.
func (p *plan) readBootstrap() error {
	data := p.path(p.Nodes[0].Name, dataDir)
	token, err := os.ReadFile(filepath.Join(data, rootFile))
	if err != nil {
		return fmt.Errorf("read root token: %w", err)
	}
	var record struct {
		ClusterID compute.UUID `json:"cluster_id"`
	}
	if err := readJSON(filepath.Join(data, recordFile), &record); err != nil {
		return fmt.Errorf("read cluster id: %w", err)
	}
	p.RootToken, p.ClusterID = strings.TrimSpace(string(token)), record.ClusterID
	return p.save()
}

// adoptRootToken reads the root token that replaces the one of the plan, and reports whether there is one.
func (p *plan) adoptRootToken() (changed bool, err error) {
	text, err := os.ReadFile(p.path(rootFile))
	token := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && (token == "" || token == p.RootToken):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read root token: %w", err)
	}
	p.RootToken = token
	return true, p.save()
}

// writeConfigs writes the berth.yaml of every node. The host bootstraps the
// cluster unless it exists, and the others join it.
func (p *plan) writeConfigs() error {
	host := p.host()
	if p.profiles {
		if err := writeFile(p.path(ProfilesToken), []byte(rand.Text()+"\n")); err != nil {
			return err
		}
	}
	for _, n := range p.Nodes {
		if err := os.MkdirAll(p.path(n.Name), 0o700); err != nil {
			return err
		}
		text, err := withSettings(p.config(host, n), p.Settings)
		if err != nil {
			return err
		}
		if err := writeFile(p.path(n.Name, configFile), text); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) config(host, n plannedNode) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by berth dev at each start.\n")
	fmt.Fprintf(&b, "name: %s\ndata_dir: %q\n", n.Name, p.path(n.Name, dataDir))
	fmt.Fprintf(&b, "api:\n  addr: %s\n  drain: 0s\nrpc:\n  addr: %s\ngossip:\n  addr: %s\n", n.API, n.RPC, n.Gossip)
	fmt.Fprintf(&b, "billing:\n  mode: enforce\ns3:\n  addr: 127.0.0.1:0\n")
	if n.Worker {
		fmt.Fprintf(&b, "role: %s\n", compute.RoleWorker)
	}
	if n.Name != host.Name {
		fmt.Fprintf(&b, "join:\n  hosts: [%q]\n  token_file: %q\n", host.RPC, p.tokenOf(n))
	}
	if p.profiles {
		fmt.Fprintf(&b, "metrics:\n  addr: 127.0.0.1:0\n  token_file: %q\n", p.path(ProfilesToken))
	}
	if n.GPUs == "" {
		fmt.Fprintf(&b, "gpus:\n  source: none\n")
		return []byte(b.String())
	}
	fmt.Fprintf(&b, "gpus:\n  source: simulated\n  simulated:\n")
	for spec := range strings.SplitSeq(n.GPUs, ",") {
		fmt.Fprintf(&b, "    - %q\n", strings.TrimSpace(spec))
	}
	return []byte(b.String())
}
