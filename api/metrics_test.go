package api_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// fakeSeries answers one point for each attempt.
type fakeSeries struct {
	mu    sync.Mutex
	asked handler.SeriesQuery
	err   error
}

// Read returns a point at the end of what is asked for.
func (s *fakeSeries) Read(_ context.Context, _ *compute.Execution, a *compute.Attempt, q handler.SeriesQuery) ([]handler.SeriesPoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = q
	p := handler.SeriesPoint{At: q.To}
	for m := range p.Values {
		p.Values[m] = float64(m) + 0.123456
	}
	p.Values[8] = math.NaN()
	return []handler.SeriesPoint{p}, s.err
}

func (s *fakeSeries) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeSeries) query() handler.SeriesQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	id := w.start("gpu.h100")
	path := "/execution/" + id.String() + "/metrics"
	var got wire.ExecutionMetrics
	w.mustDo("GET", path, w.adaKey, nil, &got)
	if got.CPUUsage == nil || len(got.CPUUsage) != 0 || got.Hostname != "" {
		t.Errorf("before the first attempt: %+v", got)
	}
	w.place(id, 1)
	w.begun(id)
	w.mustDo("GET", path+"?step=2m", w.adaKey, nil, &got)
	if len(got.GPUUtilization) != 1 || got.GPUUtilization[0].Value != 0.12 || len(got.PCIeTransmit) != 0 ||
		got.CPUUsage[0].Value != 11.12 || got.Hostname != "n1" || got.CPUUsage[0].Timestamp != got.TimeRange.End ||
		w.series.query().Step != 2*time.Minute {
		t.Errorf("got %+v", got)
	}
	w.mustDo("GET", path+"?start=2026-01-01T00:00:00Z", w.adaKey, nil, nil)
	if q := w.series.query(); q.To.Sub(q.From)/q.Step > 5000 {
		t.Errorf("the default step is %v for %v", q.Step, q.To.Sub(q.From))
	}
	for _, query := range []string{
		"step=0", "step=10ms", "step=soon", "step=1s&start=2026-01-01T00:00:00Z", "start=yesterday",
		"start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z",
	} {
		w.want(422, "", "GET", path+"?"+query, w.adaKey, nil)
	}
	w.want(404, "not_found", "GET", path, w.bobKey, nil)
	w.series.fail(compute.Errorf(compute.CodeUnavailable, "no answer"))
	w.mustDo("GET", path, w.adaKey, nil, &got)
	if len(got.Warnings) != 1 {
		t.Errorf("with its node down: %+v", got)
	}
}
