package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// Limits of a world.
const (
	maxNodes   = 9
	readyLimit = 120 * time.Second
)

// Config configures a world.
type Config struct {
	Dir    string // Holds everything the world keeps; created, and empty at first.
	Binary string // The berth program of the nodes.
	Nodes  int    // Servers, 3 to 9.
	Points bool   // The program has failpoints for Arm.
	Plant  string // A bug to plant in all nodes; "" for none.

	Workers int // Nodes without a replica besides the servers, up to MaxWorkers.
}

// World is a running cluster.
type World struct {
	Nodes     []*Node // The servers.
	Workers   []*Node
	RootToken string

	cfg  Config
	slot slot
}

// gpus returns the simulated GPUs of the i-th node. There are few types, so
// that the scheduler places work on every node.
func gpus(i int) []string {
	return [][]string{{"h100:2", "l40s:1"}, {"h100:2", "t4:1"}, {"h100:2"}}[i%3]
}

// OnOneNode reports whether a profile requests a GPU that only one of three
// nodes has: its executions cannot move.
func OnOneNode(profile string) bool {
	p, err := compute.ParseProfile(profile)
	nodes := 0
	for i := range 3 {
		if slices.ContainsFunc(gpus(i), func(g string) bool { return strings.HasPrefix(g, p.GPUType+":") }) {
			nodes++
		}
	}
	return err == nil && nodes == 1
}

// Open creates the networks and disks and starts the nodes. It returns once all
// nodes vote and have reported their GPUs. Close undoes it.
func Open(ctx context.Context, cfg Config) (_ *World, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("networks and disks need root: run it as root")
	}
	if missing := Missing(); len(missing) > 0 {
		return nil, fmt.Errorf("not installed: %s; scripts/setup.sh test installs what is missing",
			strings.Join(missing, ", "))
	}
	if cfg.Nodes < 3 || cfg.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: a world has 3 to %d", cfg.Nodes, maxNodes)
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	w := &World{cfg: cfg}
	if err := os.MkdirAll(w.Marks(), 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(w.Marks(), 0o777); err != nil { // Executions have their own users.
		return nil, err
	}
	if w.slot, err = takeSlot(ctx, cfg.Dir); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close(context.WithoutCancel(ctx)))
		}
	}()
	return w, w.comeUp(ctx)
}

// Close ends everything and removes the world's kernel objects. The directory
// stays.
func (w *World) Close(ctx context.Context) error {
	for _, n := range w.machines() {
		if err := n.Thaw(); err != nil {
			return err
		}
	}
	return errors.Join(w.slot.cleanUp(ctx, w.cfg.Dir), w.slot.release())
}

// Marks returns the directory that every execution sees as /mnt/marks.
func (w *World) Marks() string { return filepath.Join(w.cfg.Dir, "marks") }

func (w *World) tokenFile() string { return filepath.Join(w.cfg.Dir, "token") }

// comeUp builds the world and starts the cluster.
func (w *World) comeUp(ctx context.Context) error {
	for i := range w.cfg.Nodes {
		name := fmt.Sprintf("n%d", i+1)
		w.Nodes = append(w.Nodes, &Node{
			Name: name, IP: w.slot.address(firstHost + i), GPUs: gpus(i), joins: i > 0,
			world: w, dir: filepath.Join(w.cfg.Dir, name), netns: w.slot.name() + "-" + name,
			filter: filter{silent: map[string]bool{}},
		})
	}
	w.addWorkers()
	if err := w.makeNetwork(ctx); err != nil {
		return fmt.Errorf("make network: %w", err)
	}
	for _, n := range w.machines() {
		if err := n.makeDisk(ctx); err != nil {
			return fmt.Errorf("make disk: %w", err)
		}
		if err := n.writeConfig(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := w.bootstrap(ctx); err != nil {
		return fmt.Errorf("bootstrap cluster: %w", err)
	}
	for _, n := range w.Nodes[1:] {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	if err := w.startWorkers(ctx); err != nil {
		return fmt.Errorf("start workers: %w", err)
	}
	if err := w.WaitWhole(ctx); err != nil {
		return err
	}
	return w.loadIDs(ctx)
}

// bootstrap bootstraps the first node and creates a token with which the others
// join.
func (w *World) bootstrap(ctx context.Context) error {
	first := w.Nodes[0]
	if err := first.Start(ctx); err != nil {
		return err
	}
	err := poll(ctx, "the root token", func() bool {
		data, err := os.ReadFile(filepath.Join(first.data(), "root_token"))
		w.RootToken = strings.TrimSpace(string(data))
		return err == nil && w.RootToken != ""
	})
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Addrs: []string{first.URL()}, Token: w.RootToken})
	if err != nil {
		return err
	}
	if err := poll(ctx, "the first node", func() bool { return c.Ready(ctx) == nil }); err != nil {
		return err
	}
	token, err := c.CreateJoinToken(ctx, wire.NewJoinToken{Role: compute.RoleServer.String(), TTL: 3600, Uses: maxNodes})
	if err != nil {
		return err
	}
	return os.WriteFile(w.tokenFile(), []byte(token.Token), 0o600)
}

// admin returns a client for one node that does not retry.
func (w *World) admin(n *Node) (*client.Client, error) {
	return client.New(client.Config{Addrs: []string{n.URL()}, Token: w.RootToken, RetryFor: -1})
}

// WaitWhole waits until every node reports that all nodes are up with their
// GPUs and that three of them vote.
func (w *World) WaitWhole(ctx context.Context) error {
	for _, n := range w.machines() {
		c, err := w.admin(n)
		if err != nil {
			return err
		}
		why := error(nil)
		waited := poll(ctx, "node "+n.Name, func() bool {
			if ended, how := n.Ended(); ended {
				why = fmt.Errorf("its process has ended: %w", errors.Join(how, errors.New("see "+n.Log())))
				return true
			}
			why = w.whole(ctx, c)
			return why == nil
		})
		if err := errors.Join(waited, why); err != nil {
			return fmt.Errorf("node %s does not come up: %w", n.Name, err)
		}
	}
	return nil
}

// whole returns an error that names the nodes that one node reports missing from the
// cluster.
func (w *World) whole(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	peers, err := c.Peers(ctx)
	if err != nil {
		return err
	}
	up, voters := 0, 0
	for _, n := range nodes {
		if n.State == compute.NodeUp && len(n.GPUs) > 0 {
			up++
		}
	}
	for _, p := range peers {
		if p.Voter {
			voters++
		}
	}
	if all := len(w.machines()); up != all || voters < 3 {
		return fmt.Errorf("%d of %d nodes are up, %d vote", up, all, voters)
	}
	return nil
}

// loadIDs sets the nodes' ids. It copies their node.json off their disks, for
// use while a disk is unmounted.
func (w *World) loadIDs(ctx context.Context) error {
	c, err := w.admin(w.Nodes[0])
	if err != nil {
		return err
	}
	all, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range w.Nodes {
		for _, known := range all {
			if known.Name == n.Name {
				n.ID = known.ID
			}
		}
		data, err := os.ReadFile(filepath.Join(n.data(), "node.json"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.dir, "node.json"), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Leader returns the node that the others report as leader, nil for none.
func (w *World) Leader(ctx context.Context) *Node {
	for _, n := range w.Nodes {
		if !n.Running() {
			continue
		}
		c, err := w.admin(n)
		if err != nil {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, time.Second)
		peers, err := c.Peers(asked)
		cancel()
		if err != nil {
			continue
		}
		for _, p := range peers {
			for _, other := range w.Nodes {
				if p.Leader && p.ID == other.ID {
					return other
				}
			}
		}
	}
	return nil
}

// Term returns the highest term that a node's state reports; known is false if
// no node answered.
func (w *World) Term(ctx context.Context) (highest uint64, known bool) {
	for _, n := range w.Nodes {
		c, err := w.admin(n)
		if err != nil || !n.Running() {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, time.Second)
		if state, err := c.State(asked, false); err == nil {
			highest, known = max(highest, state.Term), true
		}
		cancel()
	}
	return highest, known
}

// PowerCut kills all nodes at once as a power failure does: unsynced data is
// lost. It leaves the nodes off, with their disks mounted again.
func (w *World) PowerCut(ctx context.Context) error {
	for _, n := range w.machines() {
		if err := n.cutDisk(); err != nil {
			return err
		}
	}
	// A sandbox uses the file systems of all nodes, so none may be left.
	for _, n := range w.machines() {
		if err := n.Crash(ctx); err != nil {
			return err
		}
	}
	for _, n := range w.machines() {
		if err := n.unmount(ctx); err != nil {
			return err
		}
		if err := n.mount(ctx); err != nil {
			return err
		}
	}
	return nil
}
