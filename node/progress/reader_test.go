package progress

import (
	"context"
	"fmt"
	"testing"
	"time"

	"berth/compute"
	"berth/node/logs"
)

// growing is the output of a run that others append to. It counts the lines
// that are read.
type growing struct {
	lines []logs.Line
	read  int
}

func (g *growing) print(n int, text string, at compute.Instant) {
	for range n {
		g.lines = append(g.lines, logs.Line{
			Seq: uint64(len(g.lines) + 1), At: at, Stream: logs.Stdout, Text: []byte(text),
		})
	}
}

func (g *growing) Read(_ context.Context, _ compute.ExecutionID, after uint64, limit int) ([]logs.Line, error) {
	lines := g.lines[after:]
	lines = lines[:min(len(lines), limit)]
	g.read += len(lines)
	return lines, nil
}

// TestProgressIsReadOnce holds that a poll reads only the lines since the previous one,
// however long the output is, and returns the same as one that reads all of it.
func TestProgressIsReadOnce(t *testing.T) {
	const started = compute.Instant(1000)
	out := &growing{}
	now := time.Unix(1, 0)
	reader := NewReader(out.Read, func() time.Time { return now })
	e := &compute.Execution{Epoch: 1, StartedAt: started}
	var points []compute.ProgressPoint
	for i := 1; i <= 2000; i++ {
		at := started.Add(time.Duration(i) * time.Second)
		out.print(10, "words\n", at)
		out.print(1, fmt.Sprintf("BERTH_PROGRESS %d/2000\n", i), at)
		before := out.read
		points = reader.points(t.Context(), e)
		if got := out.read - before; got != 11 {
			t.Fatalf("poll %d read %d lines of %d", i, got, len(out.lines))
		}
		want := compute.ProgressPoint{Part: float64(i) / 2000, At: time.Duration(i) * time.Second}
		if n := len(points); n == 0 || n > maxPoints || points[n-1] != want {
			t.Fatalf("poll %d: %d points, the last %v, want %v", i, n, points[len(points)-1], want)
		}
	}
	for i := 2; i < len(points)-1; i++ { // Even, but for the newest.
		step, first := points[i].Part-points[i-1].Part, points[1].Part-points[0].Part
		if step < first*0.99 || step > first*1.01 {
			t.Errorf("points are uneven: %v", points)
			break
		}
	}
	if len(points) < maxPoints/4 {
		t.Errorf("%d points of 2000 lines", len(points))
	}
	// Another attempt restarts, and the lines of the one before are not its.
	e = &compute.Execution{Epoch: 2, StartedAt: started.Add(time.Hour)}
	if points := reader.points(t.Context(), e); len(points) != 0 {
		t.Errorf("the next attempt begins with %v", points)
	}
	now = now.Add(2 * maxAge)
	reader.points(t.Context(), &compute.Execution{ID: compute.ExecutionID{UUID: compute.UUID{1}}, Epoch: 1})
	if len(reader.runs) != 1 {
		t.Errorf("%d runs are remembered, want the one that was asked for", len(reader.runs))
	}
}
