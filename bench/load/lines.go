package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/loop"
)

// printer is code that prints the time, in nanoseconds since 1970, again and again.
const printer = `import time
for _ in range(%d):
    time.sleep(0.05)
    print(time.time_ns())
`

// lines executes code that prints the time, n times, and returns how much later each
// line reached a client of a node that does not execute the code.
func lines(ctx context.Context, c *Cluster, n int) ([]time.Duration, error) {
	user, err := c.client(c.APIKey)
	if err != nil {
		return nil, err
	}
	started, err := user.Submit(ctx, client.Start{Code: fmt.Sprintf(printer, n), Timeout: noopTimeout + n/20})
	if err != nil {
		return nil, err
	}
	other, err := c.clientBeside(ctx, user, started.ExecutionID)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for event, err := range other.Stream(ctx, started.ExecutionID, 0) {
		if err != nil {
			return nil, err
		}
		now := time.Now() //nolint:forbidigo // Real processes have real time.
		for line := range strings.Lines(event.Content) {
			if printed, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil {
				took = append(took, now.Sub(time.Unix(0, printed)))
			}
		}
	}
	if len(took) != n {
		return nil, fmt.Errorf("%d of %d lines arrived", len(took), n)
	}
	return took, nil
}

// clientBeside returns a client of a node that does not execute the execution, once
// it is placed.
func (c *Cluster) clientBeside(
	ctx context.Context, user *client.Client, id compute.ExecutionID,
) (*client.Client, error) {
	for {
		e, err := user.Execution(ctx, id, 0)
		switch {
		case err != nil:
			return nil, err
		case e.Metadata != nil && e.Metadata.Node != nil:
			for _, n := range c.Nodes {
				if n.Name != *e.Metadata.Node {
					return client.New(client.Config{Addrs: []string{n.URL}, Token: c.APIKey})
				}
			}
			return nil, errors.New("the cluster has one node")
		case e.Status.Terminal():
			return nil, fmt.Errorf("execution %s ended as %s: %v", id, e.Status, e.Errors)
		}
		if !loop.Sleep(ctx, time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}
