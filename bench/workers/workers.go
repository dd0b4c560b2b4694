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

// The workload, and the poll interval of nodes.
const (
	code      = "import time; time.sleep(%d); print('done')"
	timeLimit = 600 // Seconds.
	maxHeld   = 64  // Answers that are waited for at once: a key may hold 100 of a node.
	startsPS  = 4   // Starts per second on a small machine.
	pollEvery = time.Second
	mib       = 1 << 20
)

// Node is a process of the cluster.
type Node struct {
	URL string // URL of its API.
	PID int
}

// Config configures a measurement of a cluster whose nodes are all up.
type Config struct {
	Servers   []Node
	Workers   []Node
	Follower  string // The URL of a server that does not lead. It gets the executions.
	RootToken string
	APIKey    string        // API key of an organization with credits.
	Org       string        // The slug of that organization.
	GPUType   string        // Each worker has one GPU of this type.
	Idle      time.Duration // The duration of the idle phase.

	Progress func(done, all int, what string) // Nil for none.
}

// Report is the result of a measurement. Times are wall time.
type Report struct {
	Workers int `json:"workers"`
	Servers int `json:"servers"`

	IdleS      float64 `json:"calm_s"`
	ServerCPU  float64 `json:"server_cpu"`  // Share of one processor in the idle phase: the busiest server.
	WorkerCPU  float64 `json:"worker_cpu"`  // Likewise, for the average worker.
	ServerMiB  float64 `json:"server_mib"`  // Resident: the largest server.
	WorkerMiB  float64 `json:"worker_mib"`  // Resident: the median worker.
	LargestMiB float64 `json:"largest_mib"` // Resident: the largest worker.

	Executions int     `json:"executions"` // One per worker.
	SubmitS    float64 `json:"submit_s"`   // Until the last of all sequential submits was acknowledged.
	DoneS      float64 `json:"done_s"`     // From the first submit to the last end.
	Completed  int     `json:"completed"`
	HeldS      float64 `json:"held_s"`      // The runtime of each execution.
	Executed   int     `json:"executed_on"` // The number of distinct nodes.

	MostDown  int `json:"most_down"` // The maximum number of nodes seen down.
	Elections int `json:"elections"`
}

// Run runs a measurement.
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
	// Without a quota an organization may run fewer executions at once.
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
	cfg.Progress(1, 2, fmt.Sprintf("idle for %v", cfg.Idle))
	err = r.measureIdle(ctx, cfg)
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

// mostDown polls the nodes until ctx ends and returns the maximum number seen
// down.
func mostDown(ctx context.Context, admin *client.Client) int {
	most := 0
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-ticker.C:
		}
		nodes, err := admin.Nodes(ctx)
		if err != nil {
			continue // Elections are counted; this call was canceled or hit an election.
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

// measureIdle measures idle processes.
func (r *Report) measureIdle(ctx context.Context, cfg Config) error {
	nodes := slices.Concat(cfg.Servers, cfg.Workers)
	before, err := used(nodes)
	if err != nil {
		return err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	if !loop.Sleep(ctx, cfg.Idle) {
		return ctx.Err()
	}
	after, err := used(nodes)
	if err != nil {
		return err
	}
	r.IdleS = time.Since(began).Seconds()
	var resident []float64
	for i, now := range after {
		cpu := (now.CPU - before[i].CPU).Seconds() / r.IdleS
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

// used returns the resource use of each node's process.
func used(nodes []Node) ([]usage.Process, error) {
	out := make([]usage.Process, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = usage.Read(n.PID); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.URL, err)
		}
	}
	return out, nil
}

// execute submits one execution per worker to the follower, to run at the same
// time.
func (r *Report) execute(ctx context.Context, cfg Config) error {
	c, err := client.New(client.Config{Addrs: []string{cfg.Follower}, Token: cfg.APIKey})
	if err != nil {
		return err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	ids := make([]compute.ExecutionID, len(cfg.Workers))
	// The first one still runs when the last has started, so each gets its own
	// worker.
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
	group.SetLimit(maxHeld)
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
