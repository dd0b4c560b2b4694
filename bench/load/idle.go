package load

import (
	"context"
	"time"

	"berth/loop"
)

// IdleLimit is the part of one core that three idle nodes may use together.
const IdleLimit = 0.03

// Idle is the processor use of an idle cluster, as shares of one core.
type Idle struct {
	Seconds   float64            `json:"seconds"`
	Nodes     map[string]float64 `json:"nodes"` // By name.
	Leader    string             `json:"leader"`
	Together  float64            `json:"together"`
	Reference float64            `json:"limit"` // IdleLimit.
}

// MeasureIdle waits until the cluster has settled, and measures it.
func MeasureIdle(ctx context.Context, c *Cluster, settle, window time.Duration) (Idle, error) {
	out := Idle{Nodes: map[string]float64{}, Reference: IdleLimit}
	if !loop.Sleep(ctx, settle) {
		return out, ctx.Err()
	}
	before, err := c.cpu()
	if err != nil {
		return out, err
	}
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	if !loop.Sleep(ctx, window) {
		return out, ctx.Err()
	}
	after, err := c.cpu()
	if err != nil {
		return out, err
	}
	out.Seconds = time.Since(begun).Seconds()
	for i, n := range c.Nodes {
		share := (after[i] - before[i]).Seconds() / out.Seconds
		out.Nodes[n.Name] = share
		out.Together += share
		if n.Leader {
			out.Leader = n.Name
		}
	}
	return out, nil
}
