package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"berth/api/wire"
	"berth/compute"
)

// The whole of a bar, and how full it is at most before the end.
const (
	barParts  = 1000
	barAlmost = 990
)

// newLaneView returns bars for a terminal and lines for anything else.
func newLaneView(w io.Writer) laneView {
	if isTerminal(w) {
		return newBars(w)
	}
	return &lines{w: w, shown: map[string]string{}}
}

// lines shows lanes as a line for each change that matters.
type lines struct {
	w     io.Writer
	shown map[string]string // The last line, by GPU type.
}

func (l *lines) update(lanes []lane) {
	for _, lane := range lanes {
		line := describeLane(lane, 25)
		if line != l.shown[lane.gpuType] {
			fmt.Fprintln(l.w, "  "+line)
			l.shown[lane.gpuType] = line
		}
	}
}

func (l *lines) close() {}

// describeLane returns the lane in one line, its progress in steps of percent.
func describeLane(l lane, step int) string {
	text := fmt.Sprintf("%-6s %s", l.gpuType, statusText(l.status, l.details))
	if l.node != "" {
		text += " on " + l.node
	}
	if percent := int(l.progress*100) / step * step; percent > 0 && !l.status.Terminal() {
		text += fmt.Sprintf(", %d%%", percent)
	}
	return text
}

// bars shows lanes as bars that grow.
type bars struct {
	writer   progress.Writer
	trackers map[string]*progress.Tracker
	done     chan struct{}
}

func newBars(w io.Writer) *bars {
	b := &bars{writer: progress.NewWriter(), trackers: map[string]*progress.Tracker{}, done: make(chan struct{})}
	b.writer.SetOutputWriter(w)
	b.writer.SetStyle(progress.StyleBlocks)
	b.writer.SetTrackerLength(30)
	b.writer.SetMessageLength(34)
	b.writer.SetUpdateFrequency(watchEvery)
	style := b.writer.Style()
	style.Options.PercentFormat = "%3.0f%%"
	style.Visibility.Value, style.Visibility.ETA = false, false
	style.Options.TimeInProgressPrecision, style.Options.TimeDonePrecision = 1e8, 1e8
	go func() {
		defer close(b.done)
		b.writer.Render()
	}()
	return b
}

func (b *bars) update(lanes []lane) {
	for _, lane := range lanes {
		t, found := b.trackers[lane.gpuType]
		if !found {
			t = &progress.Tracker{Total: barParts}
			b.trackers[lane.gpuType] = t
			b.writer.AppendTracker(t)
		}
		t.UpdateMessage(describeLane(lane, 101))
		switch {
		case t.IsDone():
		case lane.status == compute.StatusCompleted:
			t.SetValue(barParts)
			t.MarkAsDone()
		case lane.status.Terminal():
			t.MarkAsErrored() // Also one that was stopped early: it stays where it was.
		default:
			t.SetValue(min(int64(lane.progress*barParts), barAlmost))
		}
	}
}

// close may come before Render has begun, which then misses the first Stop.
func (b *bars) close() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		b.writer.Stop()
		select {
		case <-b.done:
			return
		case <-ticker.C:
		}
	}
}

// printSelection writes what a GPU selection found: a row per GPU type, and
// the recommendation with its reason.
func printSelection(w io.Writer, s wire.Selection) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"GPU type", "node", "status", "seconds", "credits", "exit code", "Pareto"})
	var configs []table.ColumnConfig
	for _, numeric := range []string{"seconds", "credits", "exit code"} {
		configs = append(configs, table.ColumnConfig{Name: numeric, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(append(configs, table.ColumnConfig{Name: "Pareto", Align: text.AlignCenter}))
	for _, row := range s.Rows {
		t.AppendRow(selectionRow(row))
	}
	var b strings.Builder
	fmt.Fprintln(&b, t.Render())
	fmt.Fprintln(&b, "Pareto: no other type is both faster and cheaper.")
	printWhys(&b, s.Rows)
	if s.Recommendation != nil {
		fmt.Fprintf(&b, "\nRecommended (%s): %s%s\n", s.Objective, *s.Recommendation, certainty(s.Confidence))
	} else {
		fmt.Fprintf(&b, "\nNo recommendation (%s).\n", s.Objective)
	}
	if s.Reason != nil {
		fmt.Fprintln(&b, *s.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// certainty says how sure a recommendation is, "" when that is unknown.
func certainty(confidence *float64) string {
	if confidence == nil {
		return ""
	}
	// A probability is never shown as certainty.
	return fmt.Sprintf(", confidence %.0f %%", min(100**confidence, 99))
}

// printWhys writes why types have no result, a line each.
func printWhys(w io.Writer, rows []wire.SelectionRow) {
	for _, row := range rows {
		if row.Detail != nil && (row.StoppedEarly || row.Status != compute.StatusCompleted) {
			fmt.Fprintf(w, "%s: %s\n", row.GPUType, *row.Detail)
		}
	}
}

// statusText formats a status for people. A run that the selection itself stopped is
// no failure.
func statusText(status compute.Status, details string) string {
	if status != compute.StatusCancelled {
		return status.String()
	}
	switch details {
	case compute.ReasonStoppedEarly.String():
		return "STOPPED EARLY"
	case compute.ReasonNoCapacity.String():
		return "NO CAPACITY"
	case compute.ReasonDeadline.String():
		return "OUT OF TIME"
	}
	return status.String()
}

func selectionRow(row wire.SelectionRow) table.Row {
	details := ""
	if row.StatusDetails != nil {
		details = *row.StatusDetails
	}
	seconds, credits, status, mark := "-", "-", statusText(row.Status, details), ""
	if row.Credits != nil {
		credits = fmt.Sprintf("%d.%06d", *row.Credits/compute.Credit, *row.Credits%compute.Credit)
	}
	if row.Duration != nil {
		seconds = fmt.Sprintf("%.2f", *row.Duration)
	}
	if row.Predicted != nil && row.Status != compute.StatusCompleted {
		seconds += fmt.Sprintf(" (of >= %.2f)", *row.Predicted)
	}
	if details != "" && status == row.Status.String() && row.Status != compute.StatusCompleted {
		status += " (" + details + ")"
	}
	if row.Pareto {
		mark = "*"
	}
	return table.Row{row.GPUType, orNone(row.Node), status, seconds, credits, orNone(row.ReturnCode), mark}
}
