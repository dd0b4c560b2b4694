package execution

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// The length of a bar, and its maximum fill before the end.
const (
	barParts  = 1000
	barAlmost = 990
)

// newCandidateView returns bars for a terminal, and lines for other writers.
func newCandidateView(w io.Writer) candidateView {
	if cli.IsTerminal(w) {
		return newBars(w)
	}
	return &lines{w: w, shown: map[string]string{}}
}

// lines shows candidates as a line per relevant change.
type lines struct {
	w     io.Writer
	shown map[string]string // The last line, by GPU type.
}

func (l *lines) update(candidates []candidate) {
	for _, candidate := range candidates {
		line := describeCandidate(candidate, 25)
		if line != l.shown[candidate.gpuType] {
			fmt.Fprintln(l.w, "  "+line)
			l.shown[candidate.gpuType] = line
		}
	}
}

func (l *lines) close() {}

// describeCandidate returns the candidate in one line, with its progress in
// steps of step percent.
func describeCandidate(l candidate, step int) string {
	text := fmt.Sprintf("%-6s %s", l.gpuType, statusText(l.status, l.details))
	if l.node != "" {
		text += " on " + l.node
	}
	if percent := int(l.progress*100) / step * step; percent > 0 && !l.status.Terminal() {
		text += fmt.Sprintf(", %d%%", percent)
	}
	return text
}

// bars shows candidates as progress bars.
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

func (b *bars) update(candidates []candidate) {
	for _, candidate := range candidates {
		t, found := b.trackers[candidate.gpuType]
		if !found {
			t = &progress.Tracker{Total: barParts}
			b.trackers[candidate.gpuType] = t
			b.writer.AppendTracker(t)
		}
		t.UpdateMessage(describeCandidate(candidate, 101))
		switch {
		case t.IsDone():
		case candidate.status == compute.StatusCompleted:
			t.SetValue(barParts)
			t.MarkAsDone()
		case candidate.status.Terminal():
			t.MarkAsErrored() // Also a candidate that was stopped early: its bar stays as it is.
		default:
			t.SetValue(min(int64(candidate.progress*barParts), barAlmost))
		}
	}
}

// close stops rendering. It may run before Render has begun, which then misses
// the first Stop.
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

// PrintSelection writes the result of a GPU selection: a row per GPU type, and
// the recommendation with its reason.
func PrintSelection(w io.Writer, s wire.Selection) error {
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
	printReasons(&b, s.Rows)
	if s.Recommendation != nil {
		fmt.Fprintf(&b, "\nRecommended (%s): %s%s\n", s.Objective, *s.Recommendation, describeConfidence(s.Confidence))
	} else {
		fmt.Fprintf(&b, "\nNo recommendation (%s).\n", s.Objective)
	}
	if s.Reason != nil {
		fmt.Fprintln(&b, *s.Reason)
	}
	_, err := io.WriteString(w, cli.Plain(b.String()))
	return err
}

// describeConfidence describes the confidence of a recommendation, "" if it is
// unknown.
func describeConfidence(confidence *float64) string {
	if confidence == nil {
		return ""
	}
	// A probability is never shown as 100 %.
	return fmt.Sprintf(", confidence %.0f %%", min(100**confidence, 99))
}

// printReasons writes a line for each type without a result, with the reason.
func printReasons(w io.Writer, rows []wire.SelectionRow) {
	for _, row := range rows {
		if row.Detail != nil && (row.StoppedEarly || row.Status != compute.StatusCompleted) {
			fmt.Fprintf(w, "%s: %s\n", row.GPUType, *row.Detail)
		}
	}
}

// statusText returns a readable status. A candidate that the selection
// itself ended has not failed.
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
	return table.Row{row.GPUType, cli.OrNone(row.Node), status, seconds, credits, cli.OrNone(row.ReturnCode), mark}
}
