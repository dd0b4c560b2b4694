package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/wire"
	"berth/cmd/berth/clitest"
	"berth/compute"
	"berth/gpu"
	gpuselection "berth/scheduler/selection"
)

// demoPatience is how long the demonstration may take on a slow machine.
const demoPatience = 4 * time.Minute

// TestDemo runs the demonstration with the real program.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about a minute")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, as executions are put into sandboxes")
	}
	dir := t.TempDir()
	program := clitest.MustBuild(t, dir)
	temp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	result := mustDemo(t, program, temp)
	for _, pid := range namedBy(t, temp) {
		t.Errorf("process %s is still there", pid)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	checkDemo(t, result)
}

// mustDemo runs berth demo with temp for its temporary files.
func mustDemo(t *testing.T, program, temp string) wire.Selection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "demo", "--json")
	cmd.Dir, cmd.Env = filepath.Dir(temp), append(os.Environ(), "TMPDIR="+temp)
	// At SIGTERM it ends its nodes.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("berth demo: %v\n%s\n%s", err, &stderr, &out)
	}
	var result wire.Selection
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v:\n%s", err, &out)
	}
	t.Logf("it said:\n%s", &stderr)
	return result
}

// namedBy returns the processes whose command line names the directory.
func namedBy(t *testing.T, dir string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, path := range lines {
		// A process that has just ended has no command line.
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			pids = append(pids, filepath.Base(filepath.Dir(path))+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return pids
}

// ran returns a GPU type whose one run completed.
func ran(profile string, d time.Duration, c compute.Credits) compute.Candidate {
	return compute.Candidate{Profile: profile, Runs: []compute.CandidateRun{
		{Status: compute.StatusCompleted, Duration: d, Credits: c},
	}}
}

// checkDemo checks that the demonstration shows four GPU types in the expected
// order of speed, and recommends the best for the objective.
func checkDemo(t *testing.T, s wire.Selection) {
	t.Helper()
	var types []string
	var rows []compute.Candidate
	for _, row := range s.Rows {
		types = append(types, row.GPUType)
		if row.Status != compute.StatusCompleted || row.Duration == nil || row.Credits == nil || row.Node == nil {
			t.Errorf("%s: got %+v", row.GPUType, row)
			continue
		}
		rows = append(rows, ran(row.HardwareProfile, time.Duration(*row.Duration*float64(time.Second)), *row.Credits))
		t.Logf("%s: %.2f s, %d millionths of a credit", row.GPUType, *row.Duration, *row.Credits)
	}
	if slices.Sort(types); !slices.Equal(types, []string{"a100", "h100", "l40s", "t4"}) || t.Failed() {
		t.Fatalf("got rows of %v", types)
	}
	if s.Recommendation == nil || s.Reason == nil {
		t.Fatal("nothing is recommended")
	}
	if want := rows[gpuselection.Judge(s.Objective, rows).Best].Profile; *s.Recommendation != want {
		t.Errorf("%s is recommended, the rows say %s", *s.Recommendation, want)
	}
	took := func(c compute.Candidate) time.Duration { return c.Runs[0].Duration }
	byTime := func(a, b compute.Candidate) int { return cmp.Compare(took(a), took(b)) }
	fastest, slowest := slices.MinFunc(rows, byTime), slices.MaxFunc(rows, byTime)
	// Limits on processor time are upper limits. On a busy machine all types
	// except the t4 take about equally long, and chance decides among them.
	h100 := rows[slices.IndexFunc(rows, func(c compute.Candidate) bool { return c.Profile == "gpu.h100" })]
	if slowest.Profile != "gpu.t4" || took(h100) > took(fastest)*2 {
		t.Errorf("%s is the fastest and %s the slowest, want gpu.h100 and gpu.t4", fastest.Profile, slowest.Profile)
	}
	cheapest := rows[gpuselection.Judge(compute.ObjectiveCheapest, rows).Best]
	t.Logf("%s is the fastest, %s the cheapest", fastest.Profile, cheapest.Profile)
	if fastest.Profile == cheapest.Profile {
		t.Errorf("%s is the fastest and the cheapest: there is nothing to choose", fastest.Profile)
	}
}

// TestDemoWantsEveryType checks that the demonstration fails if a GPU type has
// no result.
func TestDemoWantsEveryType(t *testing.T) {
	recommended := "gpu.h100"
	selection := func(statuses ...compute.Status) wire.Selection {
		s := wire.Selection{Status: compute.StatusCompleted, Recommendation: &recommended}
		for i, status := range statuses {
			s.Rows = append(s.Rows, wire.SelectionRow{GPUType: []string{"h100", "t4"}[i], Status: status})
		}
		return s
	}
	whole := selection(compute.StatusCompleted, compute.StatusCompleted)
	failed, aborted, silent := selection(compute.StatusCompleted, compute.StatusFailed), whole, whole
	aborted.Status = compute.StatusAborted
	silent.Recommendation = nil
	tests := []struct {
		name string
		s    wire.Selection
		want string
	}{
		{"whole", whole, ""},
		{"a type failed", failed, "not every GPU type has completed: t4 failed"},
		{"aborted", aborted, "the GPU selection aborted"},
		{"nothing recommended", silent, "recommends nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := shown(tt.s)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestSpeedsDecide checks that the verdict follows from the speeds of the
// simulated GPUs: no recommendation is fixed in advance.
func TestSpeedsDecide(t *testing.T) {
	devices, err := gpu.ParseSimulated("n1", "h100", "a100", "l40s", "t4")
	if err != nil {
		t.Fatal(err)
	}
	// Micro-credits per second.
	prices := map[string]compute.Price{"h100": 800, "a100": 420, "l40s": 280, "t4": 60}
	// judge returns the best profiles, with some speeds replaced by those in
	// other.
	judge := func(objective compute.Objective, other map[string]int) string {
		var rows []compute.Candidate
		for _, device := range devices {
			speed := device.SpeedMilli
			if s, found := other[device.Type]; found {
				speed = s
			}
			took := 6 * time.Second * 1000 / time.Duration(speed)
			rows = append(rows, ran("gpu."+device.Type, took, prices[device.Type].Charge(took)))
		}
		return rows[gpuselection.Judge(objective, rows).Best].Profile
	}
	tests := []struct {
		name                        string
		speeds                      map[string]int
		fastest, cheapest, balanced string
	}{
		{"as they are", nil, "gpu.h100", "gpu.t4", "gpu.h100"},
		{"a quick t4", map[string]int{"t4": 600}, "gpu.h100", "gpu.t4", "gpu.t4"},
		{"a slow t4", map[string]int{"t4": 60}, "gpu.h100", "gpu.l40s", "gpu.h100"},
		{"a slow h100", map[string]int{"h100": 200}, "gpu.a100", "gpu.t4", "gpu.a100"},
		{"a slow h100 and a100", map[string]int{"h100": 200, "a100": 200}, "gpu.l40s", "gpu.t4", "gpu.l40s"},
		{"half of the machine is taken", map[string]int{"h100": 250, "a100": 245, "l40s": 240, "t4": 90}, "gpu.h100", "gpu.t4", "gpu.l40s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for objective, want := range map[compute.Objective]string{
				compute.ObjectiveFastest:  tt.fastest,
				compute.ObjectiveCheapest: tt.cheapest,
				compute.ObjectiveBalanced: tt.balanced,
			} {
				if got := judge(objective, tt.speeds); got != want {
					t.Errorf("%v: got %s, want %s", objective, got, want)
				}
			}
		})
	}
}
