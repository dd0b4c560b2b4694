package benchcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"berth/bench/faults"
	"berth/cmd/berth/cli"
)

// faultRuns holds the runs in a file, and descriptions of those that are
// excluded from it.
type faultRuns struct {
	reports  []faults.Report
	excluded []faults.Excluded
}

// excludedOf returns the path of the file that describes the runs excluded from
// the file at path.
func excludedOf(path string) string { return strings.TrimSuffix(path, ".jsonl") + "-excluded.jsonl" }

// readFaultRuns reads the runs of a file.
func readFaultRuns(path string) (runs faultRuns, err error) {
	if runs.reports, err = readLines[faults.Report](path); errors.Is(err, fs.ErrNotExist) {
		return runs, cli.UsageErrorf("--report: %v", err)
	} else if err != nil {
		return runs, err
	}
	runs.excluded, err = readLines[faults.Excluded](excludedOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return runs, err
}

// readLines reads a file with one JSON value per line.
func readLines[T any](path string) (all []T, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var one T
		if err := lines.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, one)
	}
}

// into inserts the figures into a page.
func (r faultRuns) into(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return cli.UsageErrorf("--into: %v", err)
	}
	text, err := withFaultFigures(string(page), r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // Everybody may read it.
}

// printFaultRuns writes runs as text: the faults, the clients' operations
// during them, and the violations.
func printFaultRuns(w io.Writer, runs faultRuns) error {
	sum := faults.Sum(runs.reports)
	for _, lines := range []table.Writer{faultFacts(sum), faultRows(sum.Rows), faultCells(sum.Rows)} {
		if err := cli.PrintTable(w, lines); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, u := range sum.Uncounted {
		fmt.Fprintf(w, "NOT COUNTED %s, %d times: %s\n", u.Nemesis, u.Times, u.Why)
	}
	for _, e := range runs.excluded {
		fmt.Fprintf(w, "LEFT OUT %d runs: %s\n", e.Runs, e.Why)
	}
	for _, r := range runs.reports {
		if r.Unfinished != "" {
			fmt.Fprintf(w, "NOT FINISHED seed %d: %s\n", r.Seed, r.Unfinished)
		}
	}
	for _, v := range sum.Violations {
		fmt.Fprintf(w, "VIOLATION %s\n", v)
	}
	return nil
}

// writeFaultRuns writes runs as a page of Markdown.
func writeFaultRuns(w io.Writer, runs faultRuns) error {
	sum := faults.Sum(runs.reports)
	programs := cli.NewTable("version", "revision", "binary", "runs")
	for _, p := range sum.Programs {
		programs.AppendRow(cli.Row(recorded(p.Version), recorded(p.Revision), recorded(p.Binary), p.Runs))
	}
	_, err := fmt.Fprintf(w, faultsPage, faultFacts(sum).RenderMarkdown(), faultRows(sum.Rows).RenderMarkdown(),
		faultCells(sum.Rows).RenderMarkdown(), faultUncounted(sum.Uncounted), programs.RenderMarkdown(),
		faultViolations(runs.reports), faultExcluded(runs.excluded))
	return err
}

// Markers around the figures in a page that is otherwise written by hand.
const (
	figuresBegin = "<!-- Written by make faults-report, and not by hand. -->\n"
	figuresEnd   = "<!-- Until here. -->\n"
)

// withFaultFigures returns a page of Markdown with its figures replaced by
// those of the runs.
func withFaultFigures(page string, runs faultRuns) (string, error) {
	before, rest, begins := strings.Cut(page, figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return "", fmt.Errorf("no place for figures: it needs the lines %q and %q", figuresBegin, figuresEnd)
	}
	sum := faults.Sum(runs.reports)
	return before + figuresBegin + "\n" + faultFacts(sum).RenderMarkdown() + "\n\n" +
		faultAims(sum.Rows).RenderMarkdown() + "\n\n" + describeUncounted(sum, runs.excluded) + "\n\n" +
		figuresEnd + after, nil
}

// describeUncounted describes the faults and runs that no figure includes.
func describeUncounted(sum faults.Totals, excluded []faults.Excluded) string {
	times, runs := 0, 0
	for _, u := range sum.Uncounted {
		times += u.Times
	}
	for _, e := range excluded {
		runs += e.Runs
	}
	return fmt.Sprintf("Not among the faults: %s recorded ones, because nothing was broken or the line "+
		"does not show it. Not among the runs: %d whose violations were the harness's own. "+
		"[Each with its reason](reliability/faults.md).", grouped(times), runs)
}

// recorded returns text, or a note that older runs did not record the value.
func recorded(text string) string {
	if text == "" {
		return "not recorded"
	}
	return text
}

// faultsPage is the text of a page about runs, without its tables.
const faultsPage = `# Runs of berth bench faults

Written by ` + "`make faults-report`" + ` from [faults.jsonl](faults.jsonl), a line a run, and not by hand.
[Reliability](../reliability.md) lists faults and checks.

%s

A calm run has no fault. The aims of faults and starts are for runs with faults; those of runs and operations are for
both together.

## By fault

A violation belongs to a whole run: it counts in the row of each fault that the run tried to inject. "None" is the
time between faults, "calm" the time of a fault that breaks nothing. "Held" is the sum of all counted faults.
Operations and their results include faults that do not count. The first write is measured from the fault,
"whole" from its repair until every node answers and sees all others up. Most runs shared two cores with builds and
other tests, which lengthens these times.

%s

## By client

Sent operations, and in brackets the changes without an answer among them. "507" above counts answers that a disk is
full.

%s

## Not counted

Recorded faults that do not count, because nothing was broken or because the line does not show it:

%s

## Programs

%s

## Violations

%s

Runs that are not in the file, because the harness caused their violations
([faults-excluded.jsonl](faults-excluded.jsonl)):

%s
`

// faultFacts returns the sums, separately for runs with a fault that counts and
// for runs without one.
func faultFacts(sum faults.Totals) table.Writer {
	lines := cli.NewTable("", "in runs with faults", "in calm runs", "aim")
	for _, fact := range []struct {
		name string
		of   func(faults.Sums) string
		aim  string
	}{
		{"runs", faultSpan, "500"},
		{"faults", func(s faults.Sums) string { return grouped(s.Faults) }, "300"},
		{"operations that were sent", func(s faults.Sums) string { return grouped(s.Operations) }, ""},
		{"of them while something was broken", func(s faults.Sums) string { return grouped(s.While) }, ""},
		{"operations in searched histories", faultChecked, "1,000,000"},
		{"objects with a history", func(s faults.Sums) string { return grouped(s.Objects) }, ""},
		{"executions, those that wait for ever among them", func(s faults.Sums) string { return grouped(s.Executions) }, ""},
		{"of them with a charge in a searched history", func(s faults.Sums) string { return grouped(s.Charged) }, ""},
		{"starts of their code", func(s faults.Sums) string { return grouped(s.Starts) }, "10,000"},
		{"violations", func(s faults.Sums) string { return grouped(s.Violations) }, "0"},
	} {
		lines.AppendRow(cli.Row(fact.name, fact.of(sum.Faulty), fact.of(sum.Calm), fact.aim))
	}
	for _, fact := range faultMoves(sum.Moved) {
		lines.AppendRow(cli.Row(fact[0], fact[1], "", ""))
	}
	return lines
}

// faultSpan returns the number and the duration of the runs.
func faultSpan(s faults.Sums) string {
	text := fmt.Sprintf("%s, %v", grouped(s.Runs), time.Duration(s.Seconds)*time.Second)
	if s.Unfinished > 0 {
		text += fmt.Sprintf("; %d could not be finished", s.Unfinished)
	}
	return text
}

// faultChecked returns the number of operations in histories, for the runs that
// record it.
func faultChecked(s faults.Sums) string {
	if s.Checked.From == nil {
		return "0"
	}
	return fmt.Sprintf("%s, in %d runs since %s", grouped(s.Checked.Sum), s.Checked.Runs,
		s.Checked.From.UTC().Format("2006-01-02 15:04"))
}

// grouped returns a number with its digits in groups of three.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// faultAims returns the table of faults that have a required count.
func faultAims(rows []faults.Row) table.Writer {
	lines := cli.NewTable("fault", "times", "aim", "violations in these runs",
		"first write p50", "p99", "whole p50", "p99")
	for _, aim := range []struct {
		nemesis string
		times   int
	}{
		{"leader-kill", 200},
		{"power-cut", 200},
		{"follower-failing-disk", 200},
		{"damaged-file", 200},
		{"leader-hanging-disk", 0},
	} {
		at := slices.IndexFunc(rows, func(r faults.Row) bool { return r.Nemesis == aim.nemesis })
		if at < 0 {
			continue
		}
		r, want := rows[at], ""
		if aim.times > 0 {
			want = grouped(aim.times)
		}
		lines.AppendRow(cli.Row("`"+r.Nemesis+"`", grouped(r.Times), want, r.Violations,
			measured(r.WriteP50), measured(r.WriteP99), measured(r.WholeP50), measured(r.WholeP99)))
	}
	return lines
}

// faultUncounted returns the table of faults that do not count, with the
// reasons.
func faultUncounted(all []faults.Uncounted) string {
	if len(all) == 0 {
		return "Nothing."
	}
	lines := cli.NewTable("what", "times", "why")
	for _, u := range all {
		lines.AppendRow(cli.Row(u.Nemesis, u.Times, u.Why))
	}
	return lines.RenderMarkdown()
}

// faultExcluded returns a line of Markdown for each reason.
func faultExcluded(all []faults.Excluded) string {
	var lines []string
	for _, e := range all {
		lines = append(lines, fmt.Sprintf("- %d: %s", e.Runs, oneLine(e.Why)))
	}
	if len(lines) == 0 {
		return "None."
	}
	return strings.Join(lines, "\n")
}

// faultMoves returns rows about restarts of code after an expired lease, each with its name
// and its value. The times are after the fault. It counts runs whose long faults expired no
// lease.
func faultMoves(m faults.Moved) (rows [][2]string) {
	if m.Runs == 0 && m.Leases == 0 {
		return [][2]string{{"starts after a lost lease", "none: no run had a fault that outlasts a lease"}}
	}
	rows = append(rows, [2]string{"starts after a lost lease", grouped(m.Leases)})
	if m.Max > 0 {
		rows = append(rows, [2]string{
			"of them, after the fault",
			fmt.Sprintf("p50 %v, p99 %v, longest %v", m.P50, m.P99, m.Max),
		})
	}
	if m.Queued > 0 {
		rows = append(rows, [2]string{
			"of them, at once after the lease", fmt.Sprintf("%d of %d, longest %v", m.Prompt, m.Queued, m.PromptMax),
		})
	}
	if m.Without > 0 {
		rows = append(rows, [2]string{
			"runs whose fault should lose a lease, and lost NONE",
			fmt.Sprintf("%d of %d", m.Without, m.Runs),
		})
	}
	return rows
}

// faultRows returns the table of faults.
func faultRows(rows []faults.Row) table.Writer {
	lines := cli.NewTable("fault", "runs", "their violations", "times", "not counted", "held", "elections",
		"operations", "without answer", "507", "first write p50", "p99", "whole p50", "p99")
	for _, r := range rows {
		lines.AppendRow([]any{
			r.Nemesis, r.Runs, r.Violations, r.Times, r.Missed, r.Held.Round(time.Second), r.Elections,
			r.Operations, r.Unknown, r.NoSpace,
			measured(r.WriteP50), measured(r.WriteP99), measured(r.WholeP50), measured(r.WholeP99),
		})
	}
	return lines
}

// measured returns a duration as text, "-" for none.
func measured(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.String()
}

// faultCells returns the table of the operations of each workload during each
// fault.
func faultCells(rows []faults.Row) table.Writer {
	names := slices.DeleteFunc(faults.Workloads(), func(name string) bool {
		return !slices.ContainsFunc(rows, func(r faults.Row) bool { return r.Workloads[name].Operations > 0 })
	})
	header := []any{"operations (without answer) of"}
	for _, name := range names {
		header = append(header, name)
	}
	cells := cli.NewTable(header...)
	for _, r := range rows {
		line := []any{r.Nemesis}
		for _, name := range names {
			line = append(line, fmt.Sprintf("%d (%d)", r.Workloads[name].Operations, r.Workloads[name].Unknown))
		}
		cells.AppendRow(line)
	}
	return cells
}

// faultViolations returns a line of Markdown for each violation and for each
// unfinished run.
func faultViolations(reports []faults.Report) string {
	var lines []string
	for _, r := range reports {
		if r.Unfinished != "" {
			lines = append(lines, fmt.Sprintf("- seed %d could not be finished: %s", r.Seed, oneLine(r.Unfinished)))
		}
		for _, v := range r.Violations {
			lines = append(lines, fmt.Sprintf("- seed %d: %s", r.Seed, oneLine(v.String())))
		}
	}
	if len(lines) == 0 {
		return "None in these runs."
	}
	return strings.Join(lines, "\n")
}

// oneLine returns text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
