package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"berth/api/client"
	"berth/bench/quantile"
	"berth/bench/usage"
)

// Node is a process of the cluster.
type Node struct {
	Name   string
	URL    string // URL of its API.
	PID    int
	Leader bool
}

// Cluster is a running cluster whose nodes are all ready.
type Cluster struct {
	Nodes     []Node
	RootToken string
	APIKey    string // API key of an organization with credits.
	Org       string // The slug of that organization.
}

// Follower returns the URL of a node that does not lead.
func (c *Cluster) Follower() string {
	for _, n := range c.Nodes {
		if !n.Leader {
			return n.URL
		}
	}
	return c.Nodes[0].URL
}

// turns returns a function whose calls return the URL of the leader and of a follower in
// turn.
func (c *Cluster) turns() func() string {
	urls := [2]string{c.Follower(), c.Follower()}
	for _, n := range c.Nodes {
		if n.Leader {
			urls[0] = n.URL
		}
	}
	var calls atomic.Uint64
	return func() string { return urls[calls.Add(1)%2] }
}

// client returns a client of a follower with a token.
func (c *Cluster) client(token string) (*client.Client, error) {
	return client.New(client.Config{Addrs: []string{c.Follower()}, Token: token})
}

// cpu returns the processor time of each node so far.
func (c *Cluster) cpu() ([]time.Duration, error) {
	out := make([]time.Duration, len(c.Nodes))
	for i, n := range c.Nodes {
		p, err := usage.Read(n.PID)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		out[i] = p.CPU
	}
	return out, nil
}

// family returns the processor time so far of all nodes with their supervisors and sandboxes.
func (c *Cluster) family() (time.Duration, error) {
	pids := make([]int, len(c.Nodes))
	for i, n := range c.Nodes {
		pids[i] = n.PID
	}
	return usage.Family(pids...)
}

// spent returns the processor time of all nodes together while do ran.
func (c *Cluster) spent(do func() error) (time.Duration, error) {
	before, err := c.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := c.cpu()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for i := range after {
		sum += after[i] - before[i]
	}
	return sum, nil
}

// Spread is the distribution of a series of times.
type Spread struct {
	P50MS float64 `json:"p50_ms"`
	P90MS float64 `json:"p90_ms"`
	P99MS float64 `json:"p99_ms"`
}

func spreadOf(took []time.Duration) Spread {
	return Spread{
		P50MS: quantile.Milliseconds(took, 0.5), P90MS: quantile.Milliseconds(took, 0.9),
		P99MS: quantile.Milliseconds(took, 0.99),
	}
}

// times calls do from several goroutines at once, each over and over, until more
// returns false, and returns how long each call took. It stops at the first error.
func times(
	ctx context.Context, goroutines int, more func() bool, do func(ctx context.Context) error,
) (all []time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			var own []time.Duration
			for ctx.Err() == nil && more() {
				begun := time.Now() //nolint:forbidigo // Real processes have real time.
				if err := do(ctx); err != nil {
					cancel(err)
					break
				}
				own = append(own, time.Since(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	group.Wait()
	return all, context.Cause(ctx)
}
