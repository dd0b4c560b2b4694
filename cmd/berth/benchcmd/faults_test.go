package benchcmd

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/bench/faults"
	"berth/bench/faults/check"
)

// faultReports returns three runs: one without a count of operations in
// histories, one that is unfinished and has a violation, and one without a
// fault.
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
		Moves:      []faults.Move{{Nemesis: "long-pause", Reason: "node_lost", After: 27.5}},
		Violations: []check.Violation{{What: "lost", Object: "execution x", Detail: "gone"}},
		Faults:     []faults.Fault{{Nemesis: "leader-kill", Held: 3, Write: 0.6, Whole: 3}},
	}
	calm := faults.Report{
		Began: began, Seed: 9, Seconds: 600, Checked: 4000,
		Faults: []faults.Fault{{Nemesis: "calm", Held: 600}, {Nemesis: "clock", Held: 5, Note: "n1 by 5m0s"}},
		Cells:  []faults.Cell{{Nemesis: "clock", Workload: "keys", Counts: faults.Counts{Done: 1234567}}},
	}
	return []faults.Report{old, wrong, calm}
}

// TestFaultRunsAreReported checks the report of runs, as text and as Markdown.
func TestFaultRunsAreReported(t *testing.T) {
	var plain, page strings.Builder
	runs := faultRuns{faultReports(), []faults.Excluded{{Runs: 4, Why: "strace\ndid not let go"}}}
	if err := printFaultRuns(&plain, runs); err != nil {
		t.Fatal(err)
	}
	if err := writeFaultRuns(&page, runs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| runs | 2, 2m0s; 1 could not be finished | 1, 10m0s | 500 |\n",
		"| faults | 2 | 0 | 300 |\n",
		"| operations that were sent | 72 | 1,234,567 |  |\n",
		"| of them while something was broken | 32 | 0 |  |\n",
		"| operations in searched histories | 25, in 1 runs since 2026-11-23 05:00 | 4,000, in 1 runs since 2026-11-22 05:00 | 1,000,000 |\n",
		"| leader-kill | 2 | 1 | 2 | 0 | 6s | 1 | 32 | 2 | 0 | 500ms | 600ms | 2s | 3s |\n",
		"| none | 1 | 0 | 0 | 0 | 0s | 0 | 40 | 0 | 0 | - | - | - | - |\n",
		"| leader-kill | 0 (0) | 0 (0) | 32 (2) |\n",
		"| clock | 1 | no part of a node read the shifted clock |\n",
		"| starts after a lost lease | 1 |  |  |\n",
		"| of them, after the fault | p50 27.5s, p99 27.5s, longest 27.5s |  |  |\n",
		"| 0.1.0 | not recorded | not recorded | 1 |\n",
		"| 0.1.0 | abc | 00ff | 1 |\n",
		"- seed 8 could not be finished: no strace\n- seed 8: lost of execution x: gone\n",
		"- 4: strace did not let go\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	for _, want := range []string{
		"IN CALM RUNS", "THEIR VIOLATIONS", "32 (2)", "NOT FINISHED seed 8: no\nstrace", "VIOLATION lost of execution x: gone",
		"NOT COUNTED clock, 1 times: no part", "LEFT OUT 4 runs: strace",
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("no %q in\n%s", want, plain.String())
		}
	}
}

// TestFaultFiguresReplaceThoseOfAPage checks that nothing else on a page
// changes.
func TestFaultFiguresReplaceThoseOfAPage(t *testing.T) {
	runs := faultRuns{reports: faultReports()}
	page := "# A\n\n" + figuresBegin + "old\n" + figuresEnd + "\nthe rest\n"
	once, err := withFaultFigures(page, runs)
	if err != nil || !strings.HasPrefix(once, "# A\n\n"+figuresBegin) || !strings.HasSuffix(once, figuresEnd+"\nthe rest\n") ||
		strings.Contains(once, "old") || !strings.Contains(once, "| `leader-kill` | 2 | 200 |") {
		t.Errorf("got %v\n%s", err, once)
	}
	if twice, err := withFaultFigures(once, runs); err != nil || twice != once {
		t.Errorf("the second time %v\n%s", err, twice)
	}
	for _, bad := range []string{"# A\n", figuresBegin, figuresEnd + figuresBegin} {
		if _, err := withFaultFigures(bad, runs); err == nil {
			t.Errorf("%q has a place for figures", bad)
		}
	}
}

// TestPublishedFaultFiguresAreThoseOfTheRuns checks that the published figures
// are the sums of the recorded runs.
func TestPublishedFaultFiguresAreThoseOfTheRuns(t *testing.T) {
	const docs = "../../../docs/"
	runs, err := readFaultRuns(docs + "reliability/faults.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	if err := writeFaultRuns(&all, runs); err != nil {
		t.Fatal(err)
	}
	published := func(name string) string {
		text, err := os.ReadFile(docs + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := published("reliability.md")
	fresh, err := withFaultFigures(page, runs)
	if err != nil {
		t.Fatal(err)
	}
	if published("reliability/faults.md") != all.String() || page != fresh {
		t.Error("docs/reliability.md or docs/reliability/faults.md is not of faults.jsonl: make faults-report")
	}
}

// TestRunsThatCouldNotBeFinishedAreKept checks which runs are appended to a
// file: unfinished ones too.
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

// TestRunsWithoutALostLeaseSaySo checks that a fault that outlasts a lease but
// expired none is reported.
func TestRunsWithoutALostLeaseSaySo(t *testing.T) {
	for _, test := range []struct {
		moved faults.Moved
		want  [][2]string
	}{
		{faults.Moved{}, [][2]string{{"starts after a lost lease", "none: no run had a fault that outlasts a lease"}}},
		{
			faults.Moved{Runs: 2, Without: 1, Leases: 3, P50: 1, P99: 2, Max: 2, Queued: 2, Prompt: 1, PromptMax: 1},
			[][2]string{
				{"starts after a lost lease", "3"},
				{"of them, after the fault", "p50 1ns, p99 2ns, longest 2ns"},
				{"of them, at once after the lease", "1 of 2, longest 1ns"},
				{"runs whose fault should lose a lease, and lost NONE", "1 of 2"},
			},
		},
	} {
		if got := faultMoves(test.moved); !slices.Equal(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
