package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"berth/bench/faults"
	"berth/bench/faults/check"
)

// faultReports are two runs: one of before operations in histories were
// counted, and one that found something and could not be finished.
func faultReports() []faults.Report {
	began := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	old := faults.Report{
		Began: began, Program: faults.Program{Version: "0.1.0"}, Seed: 7, Seconds: 90, Objects: 3, Executions: 9, Starts: 2,
		Faults: []faults.Fault{
			{Nemesis: "leader-kill", Held: 3, Write: 0.5, Whole: 2, Elections: 1}, {Nemesis: "calm", Held: 5},
		},
		Cells: []faults.Cell{
			{Nemesis: "leader-kill", Workload: "register", Counts: faults.Counts{Done: 30, Unknown: 2, Unsent: 9}},
			{Nemesis: "none", Workload: "account", Counts: faults.Counts{Done: 40}},
		},
	}
	wrong := faults.Report{
		Began: began.AddDate(0, 0, 1), Program: faults.Program{Version: "0.1.0", Revision: "abc", Binary: "00ff"},
		Seed: 8, Checked: 25, Seconds: 30, Unfinished: "no\nstrace",
		Violations: []check.Violation{{What: "lost", Object: "execution x", Detail: "gone"}},
		Faults:     []faults.Fault{{Nemesis: "leader-kill", Held: 3, Write: 0.6, Whole: 3}},
	}
	return []faults.Report{old, wrong}
}

// TestFaultRunsAreTold holds what is told of runs, for people and as Markdown.
func TestFaultRunsAreTold(t *testing.T) {
	var plain, page strings.Builder
	if err := printFaultRuns(&plain, faultReports()); err != nil {
		t.Fatal(err)
	}
	if err := writeFaultRuns(&page, faultReports()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| runs | 2, 2m0s of faults and load; 1 could not be finished |\n",
		"| faults | 2 |\n",
		"| operations that were sent | 72 |\n",
		"| operations in searched histories | 25, in 1 runs since 2026-11-23 |\n",
		"| leader-kill | 2 | 1 | 2 | 6s | 1 | 32 | 2 | 0 | 600ms | 600ms | 3s | 3s |\n",
		"| none | 1 | 0 | 0 | 0s | 0 | 40 | 0 | 0 | - | - | - | - |\n",
		"| leader-kill | 0 (0) | 32 (2) |\n",
		"| 0.1.0 | not recorded | not recorded | 1 |\n",
		"| 0.1.0 | abc | 00ff | 1 |\n",
		"- seed 8 could not be finished: no strace\n- seed 8: lost of execution x: gone\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	for _, want := range []string{
		"THEIR VIOLATIONS", "32 (2)", "NOT FINISHED seed 8: no\nstrace", "VIOLATION lost of execution x: gone",
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("no %q in\n%s", want, plain.String())
		}
	}
}

// TestRunsThatCouldNotBeFinishedAreKept holds which runs are appended to a
// file: not only those that came to their end.
func TestRunsThatCouldNotBeFinishedAreKept(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	wrong := faultReports()[1]
	fine := faultReports()[0]
	fine.Unfinished = "interrupted"
	if !worthKeeping(t.Context(), wrong) || !worthKeeping(stopped, wrong) || !worthKeeping(t.Context(), fine) {
		t.Error("a run that found something, or could not be finished, is not kept")
	}
	if worthKeeping(stopped, fine) || worthKeeping(t.Context(), faults.Report{}) {
		t.Error("a run that somebody ended, or that had no cluster, is kept")
	}
}
