package workers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/usage"
	"berth/compute"
	"berth/loop"
)

// What is executed, and how often nodes are looked at.
const (
	code      = "import time; time.sleep(%d); print('done')"
	timeLimit = 600 // Seconds.
	startsPS  = 4   // Executions that a small machine starts in a second.
	lookEvery = time.Second
	mib       = 1 << 20
)

// Node is a process of the cluster.
type Node struct {
	URL string // Of its API.
	PID int
}

// Config says what is measured: a cluster of which every node is up.
type Config struct {
	Servers   []Node
	Workers   []Node
	Follower  string // The URL of a server that does not lead; it is asked for executions.
	RootToken string
	APIKey    string        // Of an organization that can pay,
	Org       string        // whose slug this is.
	GPUType   string        // Of which each worker has one.
	Calm      time.Duration // For which nothing is asked.

	Progress func(done, all int, what string) // Nil for none.
}

// Report is what was measured. Times are wall time.
type Report struct {
	Workers int `json:"workers"`
	Servers int `json:"servers"`

	CalmS      float64 `json:"calm_s"`
	ServerCPU  float64 `json:"server_cpu"`  // Of one processor, in the calm: the busiest server.
	WorkerCPU  float64 `json:"worker_cpu"`  // The same of a worker, on average.
	ServerMiB  float64 `json:"server_mib"`  // Resident: the largest server.
	WorkerMiB  float64 `json:"worker_mib"`  // Resident: the worker in the middle.
	LargestMiB float64 `json:"largest_mib"` // Resident: the largest worker.

	Executions int     `json:"executions"` // One for each worker.
	SubmitS    float64 `json:"submit_s"`   // Until all were acknowledged, one after the other.
	DoneS      float64 `json:"done_s"`     // From the first submit to the last end.
	Completed  int     `json:"completed"`
	HeldS      float64 `json:"held_s"`      // What each takes.
	Executed   int     `json:"executed_on"` // So many different nodes.

	MostDown  int `json:"most_down"` // Nodes that were not up at the worst look.
	Elections int `json:"elections"`
}

// Run measures.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(int, int, string) {}
	}
	r := Report{Workers: len(cfg.Workers), Servers: len(cfg.Servers)}
	var servers []string
	for _, n := range cfg.Servers {
		servers = append(servers, n.URL)
	}
	admin, err := client.New(client.Config{Addrs: servers, Token: cfg.RootToken})
	if err != nil {
		return r, err
	}
	// Without a quota of its own an organization executes less at once.
	if _, err := admin.SetQuota(ctx, wire.NewQuota{Org: cfg.Org, MaxConcurrent: len(cfg.Workers)}); err != nil {
		return r, err
	}
	before, err := admin.State(ctx, false)
	if err != nil {
		return r, err
	}
	watching, stop := context.WithCancel(ctx)
	down := make(chan int, 1)
	go func() { down <- mostDown(watching, admin) }()
	cfg.Progress(1, 2, fmt.Sprintf("nothing is asked for %v", cfg.Calm))
	err = r.rest(ctx, cfg)
	if err == nil {
		cfg.Progress(2, 2, fmt.Sprintf("%d executions", len(cfg.Workers)))
		err = r.execute(ctx, cfg)
	}
	stop()
	r.MostDown = <-down
	if err != nil {
		return r, err
	}
	after, err := admin.State(ctx, false)
	r.Elections = int(after.Term) - int(before.Term) //nolint:gosec // Terms are few.
	return r, err
}

// mostDown looks at the nodes until ctx ends and returns how many were not up
// at the worst look.
func mostDown(ctx context.Context, admin *client.Client) int {
	most := 0
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-ticker.C:
		}
		nodes, err := admin.Nodes(ctx)
		if err != nil {
			continue // Elections are counted, and this was stopped or is one.
		}
		down := 0
		for _, n := range nodes {
			if n.State != compute.NodeUp {
				down++
			}
		}
		most = max(most, down)
	}
}

// rest measures processes of which nothing is asked.
func (r *Report) rest(ctx context.Context, cfg Config) error {
	nodes := slices.Concat(cfg.Servers, cfg.Workers)
	before, err := used(nodes)
	if err != nil {
		return err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	if !loop.Sleep(ctx, cfg.Calm) {
		return ctx.Err()
	}
	after, err := used(nodes)
	if err != nil {
		return err
	}
	r.CalmS = time.Since(began).Seconds()
	var resident []float64
	for i, now := range after {
		cpu := (now.CPU - before[i].CPU).Seconds() / r.CalmS
		residentMiB := float64(now.Resident) / mib
		if i < len(cfg.Servers) {
			r.ServerCPU, r.ServerMiB = max(r.ServerCPU, cpu), max(r.ServerMiB, residentMiB)
			continue
		}
		r.WorkerCPU += cpu / float64(len(cfg.Workers))
		resident = append(resident, residentMiB)
	}
	slices.Sort(resident)
	r.WorkerMiB, r.LargestMiB = resident[len(resident)/2], resident[len(resident)-1]
	return nil
}

// used returns what the process of each node has used.
func used(nodes []Node) ([]usage.Process, error) {
	out := make([]usage.Process, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = usage.Of(n.PID); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.URL, err)
		}
	}
	return out, nil
}

// execute asks the follower for something to execute on each worker at once.
func (r *Report) execute(ctx context.Context, cfg Config) error {
	c, err := client.New(client.Config{Addrs: []string{cfg.Follower}, Token: cfg.APIKey})
	if err != nil {
		return err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	ids := make([]compute.ExecutionID, len(cfg.Workers))
	// The first still executes when the last has started: each has its worker.
	holds := 5 + len(ids)/startsPS
	held := fmt.Sprintf(code, holds)
	r.HeldS = float64(holds)
	for i := range ids {
		started, err := c.Submit(ctx, client.Start{Code: held, ExecutionType: cfg.GPUType, Timeout: timeLimit})
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		ids[i] = started.ExecutionID
	}
	r.Executions, r.SubmitS = len(ids), time.Since(began).Seconds()
	nodes := make([]string, len(ids))
	group, waiting := errgroup.WithContext(ctx)
	for i, id := range ids {
		group.Go(func() error {
			ended, err := c.Finished(waiting, id)
			if err == nil && ended.Status == compute.StatusCompleted && len(ended.Attempts) > 0 {
				nodes[i] = ended.Attempts[0].Node
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.DoneS = time.Since(began).Seconds()
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == "" })
	r.Completed = len(nodes)
	slices.Sort(nodes)
	r.Executed = len(slices.Compact(nodes))
	return nil
}
