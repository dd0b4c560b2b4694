package load

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/loop"
)

// noop is code that does nothing, and its time limit in seconds.
const (
	noop        = "pass\n"
	noopTimeout = 60
)

// Now and then: executions with a pause before each, in which nodes make a sandbox for the next.
const (
	nowAndThen = 50
	pause      = time.Second
)

// ExecutionsConfig configures MeasureExecutions.
type ExecutionsConfig struct {
	Alone   int    // Executions one after the other.
	Many    int    // Executions of all clients together.
	Clients int    // How many clients wait at once.
	Lines   int    // Printed by one execution, and read through another node.
	Waiting int    // Executions that wait for GPUs, at last; 0 leaves that out.
	Python  string // The interpreter that the reference starts.

	OutputMiB int      // Printed by one execution.
	Package   bool     // The nodes can install the package of MakePackage.
	Image     string   // That nodes and Docker execute; "" for none.
	Command   []string // Its arguments.
}

// Executions has the times and rates of code that does nothing, submitted to a follower.
type Executions struct {
	Paused    Spread  `json:"paused"`     // From the submit to the terminal status, now and then,
	Alone     Spread  `json:"alone"`      // and one after the other without a pause.
	Reference Spread  `json:"python"`     // The interpreter alone, for the same code.
	Ratio     float64 `json:"ratio"`      // Ratio of the two medians.
	PerSecond float64 `json:"per_second"` // Executions of many clients per second.
	AlonePS   float64 `json:"python_ps"`  // Starts of the interpreter alone by as many.
	CPUMS     float64 `json:"cpu_ms"`     // CPU time of all nodes, without sandboxes, for each of many,
	AllCPUMS  float64 `json:"all_cpu_ms"` // and of nodes, supervisors and sandboxes together.
	Clients   int     `json:"clients"`
	Lines     Spread  `json:"lines"` // From the print of a line to a client of another node.
	Backlog   Backlog `json:"backlog"`
	Output    Output  `json:"output"`

	Packages   *Packages   `json:"packages,omitempty"`   // Nil without a package.
	Containers *Containers `json:"containers,omitempty"` // Nil without an image.
}

// Packages compares the times of code with and without packages, which are installed
// already.
type Packages struct {
	With    Spread  `json:"with"`
	Without Spread  `json:"without"`
	ExtraMS float64 `json:"extra_ms"` // Difference of the two medians.
}

// MeasureExecutions executes code that does nothing.
func MeasureExecutions(ctx context.Context, c *Cluster, cfg ExecutionsConfig) (out Executions, err error) {
	out.Clients = cfg.Clients
	root, err := c.client(c.RootToken)
	if err != nil {
		return out, err
	}
	// Without a quota an organization may run fewer executions at once.
	if _, err := root.SetQuota(ctx, wire.NewQuota{Org: c.Org, MaxConcurrent: cfg.Clients}); err != nil {
		return out, err
	}
	user, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	one := func(ctx context.Context) error { return execute(ctx, user) }
	if out.Paused, err = paused(ctx, min(cfg.Alone, nowAndThen), one); err != nil {
		return out, fmt.Errorf("now and then: %w", err)
	}
	alone, err := times(ctx, 1, upTo(cfg.Alone), one)
	if err != nil {
		return out, fmt.Errorf("one after the other: %w", err)
	}
	interpreter, err := resolve(ctx, cfg.Python)
	if err != nil {
		return out, err
	}
	start := func(ctx context.Context) error { return exec.CommandContext(ctx, interpreter, "-c", noop).Run() }
	python, err := times(ctx, 1, upTo(cfg.Alone), start)
	if err != nil {
		return out, fmt.Errorf("start %s: %w", interpreter, err)
	}
	out.Alone, out.Reference = spreadOf(alone), spreadOf(python)
	out.Ratio = out.Alone.P50MS / out.Reference.P50MS
	printed, err := lines(ctx, c, cfg.Lines)
	if err != nil {
		return out, fmt.Errorf("read lines: %w", err)
	}
	out.Lines = spreadOf(printed)
	if err := out.measureMore(ctx, c, user, cfg); err != nil {
		return out, err
	}
	all, err := c.family()
	if err != nil {
		return out, err
	}
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	spent, err := c.spent(func() error {
		_, err := times(ctx, cfg.Clients, upTo(cfg.Many), one)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("%d clients: %w", cfg.Clients, err)
	}
	out.PerSecond = float64(cfg.Many) / time.Since(begun).Seconds()
	after, err := c.family()
	if err != nil {
		return out, err
	}
	out.AllCPUMS = float64((after - all).Milliseconds()) / float64(cfg.Many)
	begun = time.Now() //nolint:forbidigo // As above.
	if _, err := times(ctx, cfg.Clients, upTo(cfg.Many), start); err != nil {
		return out, fmt.Errorf("start %s: %w", interpreter, err)
	}
	out.AlonePS = float64(cfg.Many) / time.Since(begun).Seconds()
	out.CPUMS = float64(spent.Milliseconds()) / float64(cfg.Many)
	if cfg.Waiting > 0 {
		out.Backlog, err = c.measureBacklog(ctx, cfg, out.Alone)
	}
	return out, err
}

// measureMore measures output, packages and containers.
func (out *Executions) measureMore(
	ctx context.Context, c *Cluster, user *client.Client, cfg ExecutionsConfig,
) (err error) {
	if out.Output, err = output(ctx, c, cfg); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	if cfg.Package {
		p := &Packages{}
		if p.With, p.Without, err = installed(ctx, c, user, cfg); err != nil {
			return fmt.Errorf("with a package: %w", err)
		}
		p.ExtraMS = p.With.P50MS - p.Without.P50MS
		out.Packages = p
	}
	if cfg.Image != "" {
		found, err := containers(ctx, user, cfg)
		if err != nil {
			return err
		}
		out.Containers = &found
	}
	return nil
}

// resolve returns the interpreter that nodes start for python, which may be a wrapper
// that takes longer than the interpreter.
func resolve(ctx context.Context, python string) (string, error) {
	out, err := exec.CommandContext(ctx, python, "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		return "", fmt.Errorf("start %s: %w", python, err)
	}
	return string(out), nil
}

// execute submits code that does nothing and waits for its end.
func execute(ctx context.Context, c *client.Client) error {
	started, err := c.Submit(ctx, client.Start{Code: noop, Timeout: noopTimeout})
	if err != nil {
		return err
	}
	return completed(ctx, c, started.ExecutionID)
}

// paused calls do now and then.
func paused(ctx context.Context, n int, do func(context.Context) error) (Spread, error) {
	var all []time.Duration
	for range n {
		loop.Sleep(ctx, pause)
		one, err := times(ctx, 1, upTo(1), do)
		if err != nil {
			return Spread{}, err
		}
		all = append(all, one...)
	}
	return spreadOf(all), nil
}

// upTo returns a function that returns true n times, over all callers.
func upTo(n int) func() bool {
	var done atomic.Int64
	return func() bool { return done.Add(1) <= int64(n) }
}
