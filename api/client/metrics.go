package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// MetricsQuery selects points of an execution's metrics. A zero field selects as the
// API does by default.
type MetricsQuery struct {
	Start, End time.Time
	Step       time.Duration
}

// Metrics returns the hardware use of an execution.
func (c *Client) Metrics(ctx context.Context, id compute.ExecutionID, q MetricsQuery) (wire.ExecutionMetrics, error) {
	v := url.Values{}
	for name, at := range map[string]time.Time{"start": q.Start, "end": q.End} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Step > 0 {
		v.Set("step", q.Step.String())
	}
	var out wire.ExecutionMetrics
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/execution/" + id.String() + "/metrics", Query: v, Out: &out,
	})
	return out, err
}
