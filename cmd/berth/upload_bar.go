package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"berth/cmd/berth/cli"
)

// uploadBar shows how much of a directory is sent: a bar on a terminal, a line
// elsewhere.
type uploadBar struct {
	out     io.Writer
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{}
}

func newUploadBar(out io.Writer) *uploadBar { return &uploadBar{out: out, done: make(chan struct{})} }

// total sets how many bytes are to be sent.
func (b *uploadBar) total(bytes int64) {
	switch {
	case bytes == 0:
		close(b.done)
		return
	case !cli.IsTerminal(b.out):
		fmt.Fprintf(b.out, "berth: sending %s\n", progress.UnitsBytes.Sprint(bytes))
		close(b.done)
		return
	}
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(b.out)
	b.writer.SetAutoStop(false)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.Style().Visibility.ETA = true
	b.tracker = &progress.Tracker{Message: "berth: sending", Total: bytes, Units: progress.UnitsBytes}
	b.writer.AppendTracker(b.tracker)
	go func() {
		b.writer.Render()
		close(b.done)
	}()
}

// sent counts bytes that were sent.
func (b *uploadBar) sent(bytes int64) {
	if b.tracker != nil {
		b.tracker.Increment(bytes)
	}
}

// close ends the bar.
func (b *uploadBar) close() {
	if b.writer == nil {
		return
	}
	b.writer.Stop()
	<-b.done
}
