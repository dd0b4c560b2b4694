package faults_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/bench/faults"
	"berth/bench/faults/check"
	"berth/fault"
)

func TestConfigRefuses(t *testing.T) {
	good := faults.Config{Duration: time.Minute, Nodes: 3, Binary: "berth", Dir: "x"}
	tests := []struct {
		name   string
		change func(*faults.Config)
		want   string
	}{
		{"nemesis", func(c *faults.Config) { c.Nemeses = []string{"locusts"} }, `no fault "locusts"; there are all-kill`},
		{"workload", func(c *faults.Config) { c.Workloads = []string{"play"} }, `no workload "play"; there are account, files, keys`},
		{"points", func(c *faults.Config) { c.Nemeses = []string{"clock"} }, `"clock" needs a program with failpoints`},
		{"plant", func(c *faults.Config) { c.Plant = "map-order" }, "a planted bug needs a program with failpoints"},
		{"worker", func(c *faults.Config) { c.Nemeses = []string{"worker-kill"} }, `"worker-kill" needs a worker`},
		{"nodes", func(c *faults.Config) { c.Nodes = 2 }, "nodes: 2 is not 3 to 9"},
		{"hold", func(c *faults.Config) { c.Hold = c.Duration + 1 }, "hold: "},
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, tt := range tests {
		c := good
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestControlsExist checks that everything that controls name
// exists.
func TestControlsExist(t *testing.T) {
	known := map[fault.Bug]bool{}
	for _, p := range fault.Plants() {
		known[p.Bug] = true
	}
	for _, c := range faults.Controls() {
		if !known[c.Bug] {
			t.Errorf("there is no bug %q", c.Bug)
		}
		for _, name := range c.Nemeses {
			if !slices.Contains(faults.Nemeses(), name) {
				t.Errorf("%s: there is no nemesis %q", c.Bug, name)
			}
		}
		for _, name := range c.Workloads {
			if !slices.Contains(faults.Workloads(), name) {
				t.Errorf("%s: there is no workload %q", c.Bug, name)
			}
		}
	}
}

func TestSum(t *testing.T) {
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	report := func(at, checked int, write float64, wrong ...check.Violation) faults.Report {
		return faults.Report{
			Began: began.AddDate(0, 0, at), Program: faults.Program{Version: "1"}, Checked: checked,
			Seconds: 60, Objects: 5, Executions: 7, Charged: 2, Starts: 6, Violations: wrong,
			Faults: []faults.Fault{
				{Nemesis: "leader-kill", Held: 3, Write: write, Whole: 2, Elections: 1},
				{Nemesis: "leader-kill", Held: 9, Write: 9, Whole: 9, Missed: true},
				{Nemesis: "calm", Held: 5, Write: 0.1, Whole: 0.1},
			},
			Cells: []faults.Cell{
				{Nemesis: "leader-kill", Workload: "register", Counts: faults.Counts{Done: 3, Unknown: 1}},
				{Nemesis: "none", Workload: "register", Counts: faults.Counts{Done: 10, Refused: 1, Unsent: 1}},
			},
		}
	}
	never := report(2, 20, 0, check.Violation{What: "recovery"})
	never.Faults, never.Unfinished = never.Faults[:1], "no strace"
	got := faults.Sum([]faults.Report{report(0, 0, 0.5), report(1, 10, 1.5, check.Violation{What: "lost"}), never})
	if f := got.Faulty; f.Runs != 3 || f.Unfinished != 1 || f.Faults != 3 || f.Operations != 45 || f.While != 12 ||
		f.Objects != 15 || f.Charged != 6 || f.Violations != 2 || len(got.Violations) != 2 || len(got.Programs) != 1 || got.Programs[0].Runs != 3 {
		t.Errorf("got %+v", got)
	}
	if got.Calm != (faults.Sums{}) {
		t.Errorf("calm are %+v", got.Calm)
	}
	if c := got.Faulty.Checked; c.Sum != 30 || c.Runs != 2 || c.From == nil || !c.From.Equal(began.AddDate(0, 0, 1)) {
		t.Errorf("checked %+v", c)
	}
	row := got.Rows[1]
	if row.Nemesis != "leader-kill" || row.Runs != 3 || row.Times != 3 || row.Missed != 2 || row.Violations != 2 ||
		row.Held != 9*time.Second || row.Elections != 3 || row.Unknown != 3 ||
		row.Workloads["register"] != (faults.Work{Operations: 12, Unknown: 3}) ||
		row.WriteP50 != 500*time.Millisecond || row.WholeP99 != 2*time.Second {
		t.Errorf("got %+v", row)
	}
	if calm := got.Rows[0]; calm.Nemesis != "calm" || calm.Runs != 2 || calm.Violations != 1 {
		t.Errorf("got %+v", calm)
	}
}

// TestFaultsThatBrokeNothingAreNotCounted checks which lines of older runs are
// no faults, and that a run without any other is calm.
func TestFaultsThatBrokeNothingAreNotCounted(t *testing.T) {
	early := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	tests := []struct {
		began time.Time
		fault faults.Fault
		want  int
	}{
		{early, faults.Fault{Nemesis: "clock", Note: "n1 by 5m0s"}, 0},
		{early.Add(8 * time.Hour), faults.Fault{Nemesis: "clock", Note: "n1 by 5m0s"}, 1},
		{early, faults.Fault{Nemesis: "failpoint", Note: "n1 at x.y"}, 0},
		{early, faults.Fault{Nemesis: "failpoint", Note: "n1 at x.y: not reached"}, 0},
		{early, faults.Fault{Nemesis: "failpoint", Note: "n1 at x.y: reached"}, 1},
		{early, faults.Fault{Nemesis: "out-of-memory"}, 0},
		{early, faults.Fault{Nemesis: "out-of-memory", Note: "n1: not reached", Missed: true}, 0},
		{early, faults.Fault{Nemesis: "out-of-memory", Note: "n1: it was killed"}, 1},
		{early, faults.Fault{Nemesis: "slow-disk", Note: "n1"}, 0},
		{early.Add(12 * time.Hour), faults.Fault{Nemesis: "slow-disk", Note: "n1"}, 1},
		{early, faults.Fault{Nemesis: "follower-failing-disk", Note: "n1"}, 1},
		{early, faults.Fault{Nemesis: "calm"}, 0},
	}
	for _, tt := range tests {
		got := faults.Sum([]faults.Report{{
			Began: tt.began, Faults: []faults.Fault{tt.fault},
			Cells: []faults.Cell{{Nemesis: tt.fault.Nemesis, Counts: faults.Counts{Done: 3}}},
		}})
		if got.Faulty.Runs != tt.want || got.Calm.Runs != 1-tt.want || got.Faulty.Faults != tt.want ||
			got.Faulty.While != 3*tt.want || tt.fault.Nemesis != "calm" && got.Rows[0].Times != tt.want {
			t.Errorf("%+v: %+v", tt.fault, got)
		}
		if n := len(got.Uncounted); n != 1-tt.want && tt.fault.Nemesis != "calm" {
			t.Errorf("%+v: not counted are %+v", tt.fault, got.Uncounted)
		}
	}
}

// TestControlCountsItsViolations checks that only the violations of a planted
// bug count as finding it.
func TestControlCountsItsViolations(t *testing.T) {
	f := faults.FoundAs([]string{"ledger"}, check.Violation{What: "recovery"},
		check.Violation{What: "ledger", Undecided: true}, check.Violation{What: "ledger"})
	if f.By() != "ledger" || !f.Caught() {
		t.Errorf("found by %q", f.By())
	}
	if f := faults.FoundAs([]string{"ledger"}, check.Violation{What: "recovery"}); f.Caught() {
		t.Errorf("found by %q", f.By())
	}
}
