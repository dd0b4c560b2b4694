package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// Bar shows how many bytes have moved: a bar on a terminal, a line elsewhere.
type Bar struct {
	out     io.Writer
	verb    string // Such as "sending".
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{}
}

// NewBar returns a bar on out that is not shown yet.
func NewBar(out io.Writer, verb string) *Bar {
	return &Bar{out: out, verb: verb, done: make(chan struct{})}
}

// Total sets how many bytes are to be moved, and shows the bar.
func (b *Bar) Total(bytes int64) {
	switch {
	case bytes == 0:
		close(b.done)
		return
	case !IsTerminal(b.out):
		fmt.Fprintf(b.out, "berth: %s %s\n", b.verb, progress.UnitsBytes.Sprint(bytes))
		close(b.done)
		return
	}
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(b.out)
	b.writer.SetAutoStop(false)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.Style().Visibility.ETA = true
	b.tracker = &progress.Tracker{Message: "berth: " + b.verb, Total: bytes, Units: progress.UnitsBytes}
	b.writer.AppendTracker(b.tracker)
	go func() {
		b.writer.Render()
		close(b.done)
	}()
}

// Add counts bytes that were moved. It may be called concurrently.
func (b *Bar) Add(bytes int64) {
	if b.tracker != nil {
		b.tracker.Increment(bytes)
	}
}

// Close ends the bar.
func (b *Bar) Close() {
	if b.writer == nil {
		return
	}
	b.writer.Stop()
	<-b.done
}
