package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/loop"
)

const (
	perOrg       = 9000 // Executions that one organization queues: its limit is 10,000.
	fillClients  = 64   // That fill the queue at once.
	blockSeconds = 600  // How long the GPUs stay busy, which is the longest time limit.
	grant        = 1_000_000 * compute.Credit
	password     = "load-0123456789"
)

// Backlog is how fast code that does nothing is executed without a GPU while
// others wait for one.
type Backlog struct {
	Waiting   int     `json:"waiting"`
	SubmitCPU float64 `json:"submit_cpu_ms"` // CPU time of all nodes, for each execution that waits.
	Alone     Spread  `json:"alone"`         // One after the other, behind the queue.
	Ratio     float64 `json:"ratio"`         // Ratio of the medians behind the queue and without one.
}

// measureBacklog keeps the GPUs of one type busy, queues executions for them, and
// then executes code that does nothing.
func (c *Cluster) measureBacklog(ctx context.Context, cfg ExecutionsConfig, empty Spread) (out Backlog, err error) {
	out.Waiting = cfg.Waiting
	own, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	profile, err := c.occupy(ctx, own)
	if err != nil {
		return out, fmt.Errorf("occupy GPUs: %w", err)
	}
	spent, err := c.spent(func() error {
		for org, left := 0, cfg.Waiting; left > 0; org, left = org+1, left-perOrg {
			if err := c.queue(ctx, org, min(left, perOrg), profile); err != nil {
				return fmt.Errorf("queue executions: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out.SubmitCPU = float64(spent.Microseconds()) / 1000 / float64(cfg.Waiting)
	alone, err := times(ctx, 1, upTo(cfg.Alone), func(ctx context.Context) error { return execute(ctx, own) })
	if err != nil {
		return out, fmt.Errorf("behind %d that wait: %w", cfg.Waiting, err)
	}
	out.Alone = spreadOf(alone)
	out.Ratio = out.Alone.P50MS / empty.P50MS
	return out, nil
}

// occupy keeps all GPUs of the rarest type busy and returns its profile.
func (c *Cluster) occupy(ctx context.Context, own *client.Client) (profile string, err error) {
	machines, err := own.MachineTypes(ctx)
	if err != nil {
		return "", err
	}
	var rarest *wire.MachineType
	for i := range machines {
		m := &machines[i]
		if m.GPUCount == 1 && m.MIG == nil && m.Total > 0 && (rarest == nil || m.Total < rarest.Total) {
			rarest = m
		}
	}
	if rarest == nil {
		return "", errors.New("the cluster has no GPU")
	}
	root, err := c.client(c.RootToken)
	if err != nil {
		return "", err
	}
	if _, err := root.SetQuota(ctx, wire.NewQuota{Org: c.Org, MaxConcurrent: rarest.Total + 1}); err != nil {
		return "", err
	}
	if err := root.Grant(ctx, c.Org, grant, "load"); err != nil {
		return "", err
	}
	code := fmt.Sprintf("import time\ntime.sleep(%d)\n", blockSeconds)
	for range rarest.Total {
		_, err := own.Submit(ctx, client.Start{Code: code, ExecutionType: rarest.HardwareProfile, Timeout: blockSeconds})
		if err != nil {
			return "", err
		}
	}
	return rarest.HardwareProfile, nil
}

// queue submits n executions of a new organization, and waits until it is recorded
// that the last of them waits for GPUs. The last one asks for something else, so that
// nothing but a look of the scheduler, which comes to it behind the others, can find that.
func (c *Cluster) queue(ctx context.Context, org, n int, profile string) error {
	root, err := c.client(c.RootToken)
	if err != nil {
		return err
	}
	slug := fmt.Sprintf("load-%d", org)
	email := slug + "@example.com"
	if _, err := root.CreateUser(ctx, wire.NewUser{Email: email, Password: password, OrgSlug: slug}); err != nil {
		return err
	}
	if err := root.Grant(ctx, slug, grant, "load"); err != nil {
		return err
	}
	session, err := root.WithToken("").Login(ctx, email, password)
	if err != nil {
		return err
	}
	key, err := root.WithToken(session.AccessToken).CreateKey(ctx, slug, "load")
	if err != nil {
		return err
	}
	user := root.WithToken(key.PlaintextKey)
	start := client.Start{Code: noop, ExecutionType: profile, Timeout: noopTimeout}
	if _, err := times(ctx, fillClients, upTo(n-1), func(ctx context.Context) error {
		_, err := user.Submit(ctx, start)
		return err
	}); err != nil {
		return err
	}
	start.MinVRAMGB = 1
	last, err := user.Submit(ctx, start)
	if err != nil {
		return err
	}
	return waits(ctx, user, last.ExecutionID)
}

// waits returns once it is recorded that an execution waits for GPUs.
func waits(ctx context.Context, user *client.Client, id compute.ExecutionID) error {
	for {
		e, err := user.Execution(ctx, id, 0)
		switch {
		case err != nil:
			return err
		case e.Status != compute.StatusQueued:
			return fmt.Errorf("execution %s does not wait: %s", id, e.Status)
		case e.PendingReason != nil && *e.PendingReason == compute.ReasonGPUsBusy.String():
			return nil
		case !loop.Sleep(ctx, 100*time.Millisecond):
			return ctx.Err()
		}
	}
}
