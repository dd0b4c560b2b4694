package execution

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// series serves Observability - GPU Metrics.
type series struct {
	executions
}

// Routes returns the routes of the group.
func (g *series) Routes() []edge.Route {
	return []edge.Route{{
		Method: http.MethodGet, Path: edge.Root + "/execution/{id}/metrics", Tag: "Observability - GPU Metrics",
		Need: edge.NeedCaller,
		Summary: "Show how an execution used its GPUs, processors and memory. It is measured each second; " +
			"of attempts longer than an hour, less often.",
		Query: edge.Type[wire.MetricsQuery](), Reply: edge.Type[wire.ExecutionMetrics](), Handle: g.read,
	}}
}

// maxMetricPoints is how many points of a metric an answer may have.
const maxMetricPoints = 5000

// read answers the metrics of an execution.
func (g *series) read(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	in := r.Query.(*wire.MetricsQuery)
	q, err := g.query(e, in)
	if err != nil {
		return nil, err
	}
	if err := g.AwaitTurn(r); err != nil {
		return nil, err
	}
	out := newMetrics(e, q)
	for _, a := range r.View.Attempts(e.ID) {
		node, ok := r.View.Node(a.Node)
		out.Hostname = a.Node.String()
		if ok {
			out.Hostname = node.Name
			out.Simulated = out.Simulated || simulates(node, a)
		}
		points, err := g.Config.Series.Read(r.Ctx, e, a, q)
		switch {
		case compute.CodeOf(err) == compute.CodeUnavailable && r.Stale():
			out.Warnings = append(out.Warnings, "The metrics of attempt "+strconv.FormatUint(a.Epoch, 10)+
				" are on another node, which a stale read does not ask.")
		case compute.CodeOf(err) == compute.CodeUnavailable:
			out.Warnings = append(out.Warnings,
				"The metrics of attempt "+strconv.FormatUint(a.Epoch, 10)+" are on node "+out.Hostname+", which does not answer.")
		case err != nil:
			return nil, err
		}
		addPoints(&out, points)
	}
	return out, nil
}

// simulates reports whether an attempt has simulated GPUs.
func simulates(node *compute.Node, a *compute.Attempt) bool {
	for _, share := range a.GPUs {
		for i := range node.GPUs {
			if node.GPUs[i].ID == share.GPU && node.GPUs[i].Simulated {
				return true
			}
		}
	}
	return false
}

// query returns the query for the series of an execution.
func (g *series) query(e *compute.Execution, in *wire.MetricsQuery) (handler.SeriesQuery, error) {
	q := handler.SeriesQuery{From: in.Start, To: in.End, Step: stepOf(in.Step)}
	if q.From.IsZero() {
		q.From = e.CreatedAt
	}
	if q.To.IsZero() {
		if q.To = e.FinishedAt; q.To.IsZero() {
			q.To = compute.InstantOf(g.Now()) // The state's clock is up to seconds behind.
		}
		q.To = max(q.To, q.From)
		if q.To.Sub(q.From)/maxMetricPoints >= q.Step && in.Step == "15s" {
			q.Step = (q.To.Sub(q.From)/maxMetricPoints + time.Second).Truncate(time.Second) // The default must do.
		}
	}
	f := new(wire.Faults)
	switch {
	case q.Step < time.Second:
		f.Value("a time of at least 1s, such as 15s or 5m", "query", "step")
	case q.To < q.From:
		f.Value("it is before start", "query", "end")
	case q.To.Sub(q.From)/q.Step > maxMetricPoints:
		f.Value("more than 5000 points: ask for larger steps or less time", "query", "step")
	}
	return q, f.Err()
}

// stepOf returns the step that text says, 0 for none.
func stepOf(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

// newMetrics returns an answer without points.
func newMetrics(e *compute.Execution, q handler.SeriesQuery) wire.ExecutionMetrics {
	out := wire.ExecutionMetrics{
		ExecutionID: e.ID, TimeRange: wire.TimeRange{Start: q.From, End: q.To}, Warnings: []string{},
	}
	for _, metric := range arrays(&out) {
		*metric = []wire.MetricPoint{}
	}
	return out
}

// arrays returns the arrays of an answer in the order of SeriesPoint.Values.
func arrays(out *wire.ExecutionMetrics) [handler.SeriesMetrics]*[]wire.MetricPoint {
	return [...]*[]wire.MetricPoint{
		&out.GPUUtilization, &out.GPUMemoryUtilization, &out.GPUTemperature, &out.GPUPower, &out.GPUPowerLimit,
		&out.GPUClockSM, &out.GPUClockMemory, &out.PCIeReceive, &out.PCIeTransmit,
		&out.MemoryTotal, &out.MemoryUsed, &out.CPUUsage,
	}
}

// addPoints adds what was measured.
func addPoints(out *wire.ExecutionMetrics, points []handler.SeriesPoint) {
	to := arrays(out)
	for _, p := range points {
		for m, v := range p.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				*to[m] = append(*to[m], wire.MetricPoint{Timestamp: p.At, Value: math.Round(v*100) / 100})
			}
		}
	}
}
