package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"berth/bench/faults"
)

// printFaultRuns writes runs for people: what was broken how often, what clients
// did meanwhile, and what was wrong.
func printFaultRuns(w io.Writer, reports []faults.Report) error {
	sum := faults.Sum(reports)
	for _, fact := range faultFacts(sum) {
		fmt.Fprintf(w, "%-34s %s\n", fact[0], fact[1])
	}
	fmt.Fprintln(w)
	if err := printTable(w, faultRows(sum.Rows)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := printTable(w, faultCells(sum.Rows)); err != nil {
		return err
	}
	for _, r := range reports {
		if r.Unfinished != "" {
			fmt.Fprintf(w, "\nNOT FINISHED seed %d: %s\n", r.Seed, r.Unfinished)
		}
	}
	for _, v := range sum.Violations {
		fmt.Fprintf(w, "\nVIOLATION %s\n", v)
	}
	return nil
}

// writeFaultRuns writes the same as a page of Markdown.
func writeFaultRuns(w io.Writer, reports []faults.Report) error {
	sum := faults.Sum(reports)
	facts := newTable("", "so far")
	for _, fact := range faultFacts(sum) {
		facts.AppendRow(row(fact[0], fact[1]))
	}
	programs := newTable("version", "revision", "binary", "runs")
	for _, p := range sum.Programs {
		programs.AppendRow(row(recorded(p.Version), recorded(p.Revision), recorded(p.Binary), p.Runs))
	}
	_, err := fmt.Fprintf(w, faultsPage, facts.RenderMarkdown(), faultRows(sum.Rows).RenderMarkdown(),
		faultCells(sum.Rows).RenderMarkdown(), programs.RenderMarkdown(), faultViolations(reports))
	return err
}

// recorded returns what older runs lack as such.
func recorded(text string) string {
	if text == "" {
		return "not recorded"
	}
	return text
}

// faultsPage is a page about runs, without its tables.
const faultsPage = `# Runs of berth bench faults

Written by ` + "`make faults-long`" + ` from [faults.jsonl](faults.jsonl), a line a run, and not by hand.
What is broken and what is checked is in [reliability](../reliability.md).

%s

## By what was broken

A violation is of a whole run, whatever was broken in it: it counts in the row of each thing that its run
broke. "None" is the time between faults, "calm" a fault's time in which nothing is broken. "Held" is all times
together; those in which nothing came to what was broken are not counted. The first write is measured from the
fault on, "whole" from its mending until every node answers and knows the others to be up.

%s

## By client

Operations that were sent, and in brackets changes without an answer among them.
"507" above are those that were answered that a disk is full.

%s

## Programs

%s

## Violations

%s
`

// faultFacts returns the sums, each with what it is.
func faultFacts(sum faults.Totals) [][2]string {
	runs := fmt.Sprintf("%d, %v of faults and load", sum.Runs, time.Duration(sum.Seconds)*time.Second)
	if sum.Unfinished > 0 {
		runs += fmt.Sprintf("; %d could not be finished", sum.Unfinished)
	}
	checked := "not counted in these runs"
	if sum.Checked.From != nil {
		checked = fmt.Sprintf("%d, in %d runs since %s", sum.Checked.Sum, sum.Checked.Runs,
			sum.Checked.From.Format(time.DateOnly))
	}
	return [][2]string{
		{"runs", runs},
		{"faults", fmt.Sprint(sum.Faults)},
		{"operations that were sent", fmt.Sprint(sum.Operations)},
		{"operations in searched histories", checked},
		{"objects with a history", fmt.Sprint(sum.Objects)},
		{"executions", fmt.Sprintf("%d, those that wait for ever among them", sum.Executions)},
		{"starts of their code", fmt.Sprint(sum.Starts)},
		{"violations", fmt.Sprint(len(sum.Violations))},
	}
}

// faultRows returns the table of what was broken.
func faultRows(rows []faults.Row) table.Writer {
	lines := newTable("what was broken", "runs", "their violations", "times", "held", "elections", "operations",
		"without answer", "507", "first write p50", "p99", "whole p50", "p99")
	for _, r := range rows {
		lines.AppendRow([]any{
			r.Nemesis, r.Runs, r.Violations, r.Times, r.Held.Round(time.Second), r.Elections, r.Operations, r.Unknown, r.NoSpace,
			measured(r.WriteP50), measured(r.WriteP99), measured(r.WholeP50), measured(r.WholeP99),
		})
	}
	return lines
}

// measured returns how long something took, "-" where it never happened.
func measured(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.String()
}

// faultCells returns the table of what each workload did while each thing was
// broken.
func faultCells(rows []faults.Row) table.Writer {
	names := slices.DeleteFunc(faults.Workloads(), func(name string) bool {
		return !slices.ContainsFunc(rows, func(r faults.Row) bool { return r.Workloads[name].Operations > 0 })
	})
	header := []any{"operations (without answer) of"}
	for _, name := range names {
		header = append(header, name)
	}
	cells := newTable(header...)
	for _, r := range rows {
		line := []any{r.Nemesis}
		for _, name := range names {
			line = append(line, fmt.Sprintf("%d (%d)", r.Workloads[name].Operations, r.Workloads[name].Unknown))
		}
		cells.AppendRow(line)
	}
	return cells
}

// faultViolations returns a line of Markdown for each violation, and for each
// run that could not be finished.
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
		return "None."
	}
	return strings.Join(lines, "\n")
}

// oneLine returns text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
