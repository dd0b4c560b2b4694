package series

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/compute"
)

var testExecution = compute.ExecutionID{UUID: compute.UUID{1}}

// mustStore returns a Store with the directory of one attempt.
func mustStore(t *testing.T) *Store {
	t.Helper()
	s := Open(t.TempDir())
	if err := os.MkdirAll(filepath.Dir(s.path(testExecution, 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// mustRead returns all points of the attempt.
func mustRead(t *testing.T, s *Store) []Point {
	t.Helper()
	points, err := s.Read(testExecution, 1, 0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestLongAttempt records ten hours by the second.
func TestLongAttempt(t *testing.T) {
	s := mustStore(t)
	w, err := newWriter(s.path(testExecution, 1))
	if err != nil {
		t.Fatal(err)
	}
	const seconds = 36_000
	for i := range seconds {
		p := Unknown(compute.Instant(1000 * (i + 1)))
		p.Values[CPUPercent] = float64(i)
		if err := w.add(p); err != nil {
			t.Fatal(err)
		}
		if i == seconds/2 { // The node is started again.
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			if w, err = newWriter(s.path(testExecution, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	points := mustRead(t, s)
	if n := len(points); n > MaxPoints || n < MaxPoints/2 || points[n-1].At != 1000*seconds {
		t.Fatalf("%d points, the last at %d", n, points[n-1].At)
	}
	for i, p := range points {
		want := float64(p.At)/1000 - 1
		if v := p.Values[CPUPercent]; math.Abs(v-want) > 32 || !math.IsNaN(p.Values[GPUPowerWatt]) {
			t.Fatalf("point %d at %d is %v", i, p.At, p.Values)
		}
	}
	info, err := os.Stat(s.path(testExecution, 1))
	if err != nil || info.Size() > 220<<10 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if some, err := s.Read(testExecution, 1, 1000, 100_000); err != nil || len(some) == 0 || some[len(some)-1].At > 100_000 {
		t.Errorf("a part has %d points, %v", len(some), err)
	}
	if err := s.Delete(testExecution); err != nil {
		t.Fatal(err)
	}
	if points := mustRead(t, s); len(points) != 0 {
		t.Errorf("deleted: %d points", len(points))
	}
}

// TestTornFile continues a file whose last point the machine did not write whole.
func TestTornFile(t *testing.T) {
	s := mustStore(t)
	path := s.path(testExecution, 1)
	for _, left := range []int{0, 3, headerBytes, headerBytes + 5, headerBytes + pointBytes, headerBytes + 2*pointBytes - 1} {
		w := &writer{path: path, seconds: 1}
		for i := range 2 {
			if err := w.add(Unknown(compute.Instant(i + 1))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(path, int64(left)); err != nil {
			t.Fatal(err)
		}
		w, err := newWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.add(Unknown(9)); err != nil {
			t.Fatal(err)
		}
		points, whole := mustRead(t, s), max(0, left-headerBytes)/pointBytes
		if len(points) != whole+1 || points[whole].At != 9 {
			t.Errorf("of %d bytes: %v", left, points)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThin(t *testing.T) {
	var points []Point
	for i := range 10 {
		p := Unknown(compute.Instant(1000 * (i + 1)))
		if p.Values[CPUPercent] = float64(i); i == 4 {
			p.Values[CPUPercent] = math.NaN()
		}
		points = append(points, p)
	}
	out := Thin(points, 4000)
	if len(out) != 3 || out[0].At != 4000 || out[1].At != 8000 || out[2].At != 12000 ||
		out[0].Values[CPUPercent] != 1.5 || out[1].Values[CPUPercent] != 6 || out[2].Values[CPUPercent] != 8.5 ||
		!math.IsNaN(out[0].Values[GPUPowerWatt]) {
		t.Errorf("got %+v", out)
	}
	if out := Thin(points, 1000); len(out) != 10 || out[3].At != 4000 {
		t.Errorf("got %+v", out)
	}
}

// TestRecorder measures an attempt on two GPUs, of which one does not report its
// temperature, for as long as it lives.
func TestRecorder(t *testing.T) {
	s := mustStore(t)
	now, cpu := time.UnixMilli(1_000_000), time.Duration(0)
	live := []compute.Work{{
		Attempt:   &compute.Attempt{Execution: testExecution, Epoch: 1, GPUs: []compute.GPUShare{{GPU: "a", Milli: 1000}, {GPU: "b", Milli: 500}}},
		Execution: &compute.Execution{ID: testExecution, Request: compute.Request{VCPUMilli: 2000, MemoryMiB: 1}},
	}}
	polls := 0
	r := NewRecorder(Config{
		Store: s, Work: func() []compute.Work { return live },
		Resources: func(compute.Work) (time.Duration, int64, bool) { return cpu, 4096, true },
		Poll:      func(context.Context) { polls++ },
		Last: func(id compute.GPUID) (compute.GPUSample, bool) {
			g := compute.GPUSample{UtilPercent: 50, UsedMiB: 30, FreeMiB: 70, TemperatureC: 60, PowerWatt: 100, PowerLimitWatt: 300}
			if id == "b" {
				g.UtilPercent, g.TemperatureC = 100, -1
			}
			return g, true
		},
		Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
	})
	round := func() {
		now, cpu = now.Add(time.Second), cpu+time.Second
		r.Round(t.Context())
	}
	round()
	if polls != 0 || len(mustRead(t, s)) != 0 {
		t.Error("an attempt that has not started was measured")
	}
	live[0].Attempt.Started = true
	round()
	round()
	points := mustRead(t, s)
	if len(points) != 2 || polls != 2 {
		t.Fatalf("%d points, %d polls", len(points), polls)
	}
	want := map[Metric]float64{
		GPUUtilPercent: 75, GPUMemoryPercent: 30, GPUPowerWatt: 150, GPUPowerLimitWatt: 450,
		MemoryTotalBytes: 1 << 20, MemoryUsedBytes: 4096, CPUPercent: 50,
	}
	for m, v := range want {
		if got := points[1].Values[m]; got != v {
			t.Errorf("metric %d is %v, want %v", m, got, v)
		}
	}
	if got := points[1].Values[GPUTemperatureC]; !math.IsNaN(got) {
		t.Errorf("an unknown temperature is %v", got)
	}
	live = nil
	round()
	if len(r.live) != 0 || len(mustRead(t, s)) != 2 {
		t.Error("an attempt that ended is still measured")
	}
	if err := s.Delete(compute.ExecutionID{}); err == nil {
		t.Error("the series of all executions were deleted")
	}
}
