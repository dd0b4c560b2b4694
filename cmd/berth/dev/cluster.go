package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"berth/api/client"
)

// How long a cluster may take to come up, and how often it is polled after
// that.
const (
	readyLimit  = 90 * time.Second
	readyMore   = 2 * time.Second // For each node.
	surveyEvery = time.Second     // After a change; then twice as long each time,
	surveyRare  = 5 * time.Second // up to this.
	surveyLimit = 3 * time.Second
	surveyMore  = 50 * time.Millisecond // For each node.
	maxEnds     = 4                     // Ends of one node before it was ever ready.
	voters      = 3                     // The default of nodes. Fewer could not lose a node.
)

// Cluster is a cluster of node processes on this machine.
type Cluster struct {
	cfg   Config
	plan  *plan
	lock  *os.File
	ready chan struct{} // Closed once cluster.json is written.
	woken chan struct{} // A process started or ended; size 1.
	nodes sync.WaitGroup

	written State // Content of cluster.json; owned by the supervising goroutine.

	mu   sync.Mutex
	pids map[string]int  // By node name; 0 for no process.
	ends map[string]int  // How often the node's process has ended.
	gone map[string]bool // The node has reported that the cluster removed it.
}

// Open locks the directory of a cluster for this process. It starts nothing.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	held, err := lock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	plan, err := loadPlan(ctx, cfg)
	if err == nil {
		plan.profiles = cfg.Profiles
		err = plan.writeConfigs()
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cfg.Logger.With("part", "dev")
	if names := withheld(os.Environ()); len(names) > 0 {
		cfg.Logger.Warn("variables are not passed to the nodes", "reason", names,
			"hint", "nodes of berth dev read DIR/NODE/berth.yaml only")
	}
	return &Cluster{
		cfg: cfg, plan: plan, lock: held,
		ready: make(chan struct{}), woken: make(chan struct{}, 1),
		pids: map[string]int{}, ends: map[string]int{}, gone: map[string]bool{},
	}, nil
}

// Close unlocks the directory.
func (c *Cluster) Close() error { return c.lock.Close() }

// Ready is closed once every node is ready and cluster.json is written.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// Run starts the nodes, creates a user and a key at the first start, and keeps
// cluster.json current until ctx ends. It returns when no process is left.
func (c *Cluster) Run(ctx context.Context) (err error) {
	if err := c.clear(ctx); err != nil {
		return err
	}
	guard, err := startGuard(ctx, c.cfg.Binary, c.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.release()) }()

	running, stop := context.WithCancel(ctx)
	err = c.supervise(running)
	stop()
	c.nodes.Wait()
	_, swept := endAll(context.WithoutCancel(ctx), c.cfg.Dir, "supervise")
	err = errors.Join(err, swept, reap(c.cfg.Dir), removeState(c.cfg.Dir))
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// RunWhile runs the cluster and calls use once it is ready. The cluster ends
// when use returns. use must return when ctx ends.
func (c *Cluster) RunWhile(ctx context.Context, use func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1) // Buffered, because RunWhile may return without receiving.
	go func() { ended <- c.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-c.Ready():
	}
	err := use()
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	return err
}

// clear ends the processes that an earlier crash left and checks that the ports
// are free.
func (c *Cluster) clear(ctx context.Context) error {
	for _, verb := range []string{"node", "supervise"} {
		if _, err := endAll(ctx, c.cfg.Dir, verb); err != nil {
			return err
		}
	}
	if err := removeState(c.cfg.Dir); err != nil {
		return err
	}
	return c.plan.checkPorts(ctx)
}

// supervise brings the cluster up and then keeps cluster.json current.
func (c *Cluster) supervise(ctx context.Context) error {
	if err := c.comeUp(ctx); err != nil {
		return err
	}
	admin, err := c.client(c.plan.RootToken)
	if err != nil {
		return err
	}
	for wait := surveyEvery; ; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, surveyRare)
		case <-c.woken:
			wait = surveyEvery
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
		switch changed, err := c.plan.adoptRootToken(); {
		case err != nil:
			c.cfg.Logger.Error("root token not replaced", "err", err)
		case changed:
			admin = admin.WithToken(c.plan.RootToken)
		}
		if c.survey(ctx, admin) {
			wait = surveyEvery
		}
	}
}

// maxAddrs is the largest number of node addresses that a client gets.
const maxAddrs = 16

// client returns a client for the servers that does not retry, because this
// package polls.
func (c *Cluster) client(token string) (*client.Client, error) {
	var addrs []string
	for _, n := range c.plan.members() {
		if !n.Worker && len(addrs) < maxAddrs {
			addrs = append(addrs, "http://"+n.API)
		}
	}
	return client.New(client.Config{Addrs: addrs, Token: token, RetryFor: -1})
}

// launch starts the node and keeps it running.
func (c *Cluster) launch(ctx context.Context, n plannedNode) {
	c.nodes.Go(func() { c.keepRunning(ctx, n) })
}

// setPID records the process of a node, 0 for none.
func (c *Cluster) setPID(node string, pid int) {
	c.mu.Lock()
	c.pids[node] = pid
	c.mu.Unlock()
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

func (c *Cluster) pid(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pids[node]
}

// noteEnd counts an end of the node's process.
func (c *Cluster) noteEnd(node string) {
	c.mu.Lock()
	c.ends[node]++
	c.mu.Unlock()
}

// noteRemoved records that the node's process ended because the cluster has
// removed the node.
func (c *Cluster) noteRemoved(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[node] = true
}

// dropRemoved stores in the plan which nodes the cluster has removed, so that
// they are not started again. Only the supervising goroutine calls it, because
// it owns the plan.
func (c *Cluster) dropRemoved() error {
	c.mu.Lock()
	gone := maps.Clone(c.gone)
	c.mu.Unlock()
	changed := false
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		if n.Removed || !gone[n.Name] {
			continue
		}
		n.Removed, changed = true, true
		c.cfg.Logger.Warn("node removed from the cluster", "node", n.Name, "path", c.plan.path(n.Name, dataDir),
			"hint", "delete the path and start again to add a new node")
	}
	if !changed {
		return nil
	}
	return c.plan.save()
}

// givenUp returns a node whose process ends repeatedly after its start.
func (c *Cluster) givenUp() (node string, found bool) {
	limit := maxEnds
	if !c.cfg.Restart {
		limit = 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.plan.Nodes {
		if c.ends[n.Name] >= limit {
			return n.Name, true
		}
	}
	return "", false
}

// unready returns the error for a node that does not come up.
func (c *Cluster) unready(node, why string) error {
	return fmt.Errorf("node %s %s; the end of its log:\n%s", node, why, c.plan.tailLog(node))
}
