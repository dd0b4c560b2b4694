package nodetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/node"
	"berth/node/config"
)

// Timing of tests. Machines are slow and noisy, so waits are long: they end as
// soon as what they wait for is there.
const (
	promoteAfter = 200 * time.Millisecond
	smallDisk    = 1 << 30 // Bytes of a file system that a test made for itself.
	readyWait    = 90 * time.Second
	pollPeriod   = 20 * time.Millisecond
)

// GPUs returns the simulated devices of a node: four types over three nodes,
// as `berth dev` has them.
func GPUs(i int) []string {
	return [][]string{{"h100:2", "l40s:4"}, {"a100:4"}, {"t4:4"}}[i%3]
}

// Cluster is a running cluster.
type Cluster struct {
	tb    testing.TB
	Nodes []*Node
	// RootToken is the cluster's root token.
	RootToken string

	output *output
}

// Node is one node of a Cluster.
type Node struct {
	Config config.Config
	// Format is the newest format of the state that the node claims to know; 0
	// is that of this program.
	Format uint64
	// Ahead is by how much the clock of the node's machine is ahead, from the next
	// start on.
	Ahead time.Duration

	tb     testing.TB
	output *output
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
	peer   *node.Node
}

// New runs n nodes in this process and returns once each is ready. The test's
// end stops them and fails the test if a state is broken.
func New(tb testing.TB, n int) *Cluster {
	tb.Helper()
	return NewWith(tb, n, func(int, *NodeConfig) {})
}

// NodeConfig is the configuration of a node.
type NodeConfig = config.Config

// NewWith is New with configurations that change makes other than usual.
func NewWith(tb testing.TB, n int, change func(i int, cfg *NodeConfig)) *Cluster {
	tb.Helper()
	return newCluster(tb, n, 0, change)
}

// NewOld is New with nodes whose program is so old that it knows the state up
// to format only.
func NewOld(tb testing.TB, n int, format uint64) *Cluster {
	tb.Helper()
	return newCluster(tb, n, format, func(int, *NodeConfig) {})
}

func newCluster(tb testing.TB, n int, format uint64, change func(i int, cfg *NodeConfig)) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, output: newOutput(tb)}
	for i := range n {
		cfg := Config(tb, i)
		change(i, &cfg)
		if i > 0 {
			c.mustPrepareJoin(&cfg)
		}
		c.Nodes = append(c.Nodes, mustRun(tb, cfg, format, c.output))
		if i == 0 {
			Eventually(tb, readyWait, "the cluster to be made", func() bool { return c.Nodes[0].peer.View().Bootstrapped() })
			c.RootToken = mustReadFile(tb, filepath.Join(cfg.DataDir, "root_token"), readyWait)
			c.output.hide(c.RootToken)
		}
	}
	c.WaitReady()
	return c
}

// Add has another node join, and returns it once every node knows it.
func (c *Cluster) Add() *Node {
	c.tb.Helper()
	cfg := Config(c.tb, len(c.Nodes))
	c.mustPrepareJoin(&cfg)
	n := mustRun(c.tb, cfg, 0, c.output)
	c.Nodes = append(c.Nodes, n)
	c.WaitReady()
	return n
}

// Config returns the configuration of the i-th node of a test cluster.
func Config(tb testing.TB, i int) config.Config {
	tb.Helper()
	cfg := config.Default()
	cfg.Name = "n" + string(rune('1'+i))
	cfg.DataDir = filepath.Join(tb.TempDir(), cfg.Name)
	cfg.API.Addr, cfg.RPC.Addr, cfg.Gossip.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.S3.Addr = config.S3Off   // Tests of S3 clients open it.
	cfg.API.Drain = 0            // Nothing balances load here.
	cfg.Raft.Profile = "default" // Other tests keep the machine busy.
	cfg.GPUs.Source, cfg.GPUs.Simulated = "simulated", GPUs(i)
	cfg.Exec.Grace = 2 * time.Second
	cfg.Docker.Host = config.DockerOff // Tests of containers name an engine.
	cfg.Billing.Mode = "enforce"
	return cfg
}

// Hide fails the test at its end if a node has logged the text.
func (c *Cluster) Hide(text string) { c.output.hide(text) }

// Logged reports whether a node has logged a line with all texts.
func (c *Cluster) Logged(texts ...string) bool { return c.output.logged(texts) }

// mustPrepareJoin points cfg at the running nodes, with a token of its own.
func (c *Cluster) mustPrepareJoin(cfg *config.Config) {
	c.tb.Helper()
	token := mustToken(c.tb, c.Nodes[0].URL(), c.RootToken, cfg.Role)
	cfg.Join.TokenFile = filepath.Join(c.tb.TempDir(), "token")
	if err := os.WriteFile(cfg.Join.TokenFile, []byte(token), 0o600); err != nil {
		c.tb.Fatal(err)
	}
	for _, n := range c.Servers() {
		cfg.Join.Hosts = append(cfg.Join.Hosts, n.peer.RPCAddress())
	}
}

// mustRun opens and runs a node.
func mustRun(tb testing.TB, cfg config.Config, format uint64, out *output) *Node {
	tb.Helper()
	n := &Node{Config: cfg, Format: format, tb: tb, output: out}
	n.Start()
	tb.Cleanup(n.Stop)
	return n
}

// Start runs the node, again after Stop, on the same data and addresses.
func (n *Node) Start() {
	n.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var now func() time.Time
	if ahead := n.Ahead; ahead != 0 {
		now = func() time.Time { return time.Now().Add(ahead) } //nolint:forbidigo // As the node's own default.
	}
	peer, err := node.Open(ctx, n.Config, node.Options{
		Version: "test", Format: n.Format, PromoteAfter: promoteAfter, Ballast: ballastIn(n.Config.DataDir),
		Logger:    config.NewLogger(n.Config.Log, n.output).With("node", n.Config.Name),
		Fatal:     func(err error) { n.tb.Errorf("node %s: %v", n.Config.Name, err) },
		StopLimit: stopWait,
		Now:       now,
	})
	if err != nil {
		cancel()
		n.tb.Fatalf("open node %s: %v", n.Config.Name, err)
	}
	n.peer = peer
	// The next start takes the same addresses.
	n.Config.API.Addr = strings.TrimPrefix(peer.URL(), "http://")
	n.Config.RPC.Addr, n.Config.Gossip.Addr = peer.RPCAddress(), peer.GossipAddress()
	n.done.Go(func() { n.err = errors.Join(peer.Run(ctx), peer.Close()) })
}

// ballastIn returns the ballast of a node on the disk that dir will be on. It
// is the default on a small disk, which a test fills. It is nothing on the
// machine's disk, where the ballast of many nodes would add up.
func ballastIn(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &st); err != nil || int64(st.Blocks)*st.Bsize > smallDisk {
		return -1
	}
	return 0
}

// Stop ends the node gracefully and checks its state.
func (n *Node) Stop() {
	n.tb.Helper()
	n.cancel()
	n.done.Wait()
	if n.err != nil {
		n.tb.Errorf("node %s: %v", n.Config.Name, n.err)
	}
	if err := n.peer.View().Check(); err != nil {
		n.tb.Errorf("node %s: the state is broken: %v", n.Config.Name, err)
	}
}

// URL returns the base URL of the node's API.
func (n *Node) URL() string { return n.peer.URL() }

// ID returns the node's id.
func (n *Node) ID() compute.NodeID { return n.peer.ID() }

// Peer returns the node itself.
func (n *Node) Peer() *node.Node { return n.peer }

// MustAccount makes an account through a follower.
func (c *Cluster) MustAccount(name string) Account {
	c.tb.Helper()
	return mustAccount(c.tb, c.output, c.Follower().URL(), c.RootToken, name)
}

// Restart ends all nodes and starts them again on machines whose clocks are ahead.
func (c *Cluster) Restart(ahead time.Duration) {
	c.tb.Helper()
	for _, n := range c.Nodes {
		n.Stop()
		n.Ahead = ahead
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitReady()
}

// WaitReady waits until every node knows every node, all with their GPUs.
func (c *Cluster) WaitReady() {
	c.tb.Helper()
	Eventually(c.tb, readyWait, "every node to know every node", func() bool {
		for _, n := range c.Servers() {
			known := 0
			for record := range n.peer.View().Nodes() {
				if record.InventoryVersion > 0 && record.State == compute.NodeUp {
					known++
				}
			}
			if known != len(c.Nodes) {
				return false
			}
		}
		return true
	})
}

// Servers returns the nodes that hold the state.
func (c *Cluster) Servers() []*Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return n.Config.Role == Worker })
}

// Worker is the role of a node that holds no state, for Config.
const Worker = "worker"

// Leader returns the node that leads.
func (c *Cluster) Leader() *Node {
	c.tb.Helper()
	var leader *Node
	Eventually(c.tb, readyWait, "a leader", func() bool {
		for _, n := range c.Nodes {
			if n.peer.IsLeader() {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// Follower returns a node that does not lead.
func (c *Cluster) Follower() *Node {
	c.tb.Helper()
	leader := c.Leader()
	for _, n := range c.Servers() {
		if n != leader {
			return n
		}
	}
	c.tb.Fatal("the cluster has one node")
	return nil
}

// Eventually polls done until it holds, and fails the test after the limit.
func Eventually(tb testing.TB, limit time.Duration, what string, done func() bool) {
	tb.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline.C:
			tb.Fatalf("waited %v in vain for %s", limit, what)
		case <-ticker.C:
		}
	}
}
