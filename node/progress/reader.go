package progress

import (
	"context"
	"strings"
	"sync"
	"time"

	"berth/compute"
	"berth/node/logs"
)

// Limits of what is remembered of the progress of runs.
const (
	maxLines   = 10_000      // Read at once.
	maxSeen    = 4096        // Runs.
	heldPoints = 512         // Points of one run; even.
	maxAge     = time.Minute // A run that nobody has asked for this long is forgotten.
)

// Reader measures how far the runs of GPU selections are that execute here. It
// continues where it stopped before, so that a query costs only the output since
// the last one.
type Reader struct {
	read func(ctx context.Context, id compute.ExecutionID, after uint64, limit int) ([]logs.Line, error)
	now  func() time.Time

	mu   sync.Mutex
	runs map[compute.ExecutionID]*seenRun
}

// seenRun is the progress of one run, as far as its output was read.
type seenRun struct {
	mu sync.Mutex

	epoch  uint64
	after  uint64 // The last line that was read.
	points []compute.ProgressPoint
	stride int // Every so many lines of progress one is a point,
	lines  int // of so many so far.
	last   compute.ProgressPoint

	asked time.Time // Guarded by the reader's lock.
}

// NewReader returns a reader of the output that read returns.
func NewReader(
	read func(context.Context, compute.ExecutionID, uint64, int) ([]logs.Line, error), now func() time.Time,
) *Reader {
	return &Reader{read: read, now: now, runs: map[compute.ExecutionID]*seenRun{}}
}

// of returns how far runs are, those that have started.
func (p *Reader) of(
	ctx context.Context, lookup func(compute.ExecutionID) (*compute.Execution, bool), runs []Run,
) []Run {
	var out []Run
	for _, run := range runs {
		e, ok := lookup(run.Execution)
		if !ok || e.StartedAt.IsZero() {
			continue
		}
		run.Elapsed = p.now().Sub(e.StartedAt.Time())
		if e.Status.Terminal() {
			run.Elapsed = e.Duration
		}
		run.Points, run.Known = p.points(ctx, e), nil
		out = append(out, run)
	}
	return out
}

// points returns the progress that the newest attempt of an execution has
// printed.
func (p *Reader) points(ctx context.Context, e *compute.Execution) []compute.ProgressPoint {
	seen := p.enter(e.ID)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.epoch != e.Epoch { // It was restarted.
		seen.epoch, seen.after, seen.points, seen.stride, seen.lines = e.Epoch, 0, nil, 1, 0
	}
	for {
		lines, err := p.read(ctx, e.ID, seen.after, maxLines)
		if err != nil || len(lines) == 0 {
			return seen.all()
		}
		for i := range lines {
			seen.add(&lines[i], e.StartedAt)
		}
		seen.after = lines[len(lines)-1].Seq
	}
}

// enter returns the entry of a run, and forgets runs that nobody asks for any
// more.
func (p *Reader) enter(id compute.ExecutionID) *seenRun {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, known := p.runs[id]
	if !known {
		for other, s := range p.runs {
			if now.Sub(s.asked) > maxAge || len(p.runs) >= maxSeen {
				delete(p.runs, other)
			}
		}
		seen = &seenRun{stride: 1}
		p.runs[id] = seen
	}
	seen.asked = now
	return seen
}

// add counts one line of output. Every stride-th line of progress becomes a point, so
// that points stay even however many lines there are.
func (s *seenRun) add(line *logs.Line, started compute.Instant) {
	if line.Stream != logs.Stdout || !strings.Contains(string(line.Text), compute.ProgressMark) {
		return
	}
	part, ok := compute.ParseProgress(string(line.Text))
	at := line.At.Sub(started)
	if !ok || at < 0 {
		return // No progress, or of an attempt before.
	}
	s.last = compute.ProgressPoint{Part: part, At: at}
	if s.lines++; s.lines%s.stride != 0 {
		return
	}
	s.points = append(s.points, s.last)
	if len(s.points) == heldPoints {
		s.points = compute.ThinProgress(s.points, heldPoints/2)
		s.stride *= 2
	}
}

// all returns at most maxPoints points, the newest at the end.
func (s *seenRun) all() []compute.ProgressPoint {
	out := append([]compute.ProgressPoint(nil), s.points...)
	if n := len(out); s.lines > 0 && (n == 0 || out[n-1] != s.last) {
		out = append(out, s.last)
	}
	return compute.ThinProgress(out, maxPoints)
}
