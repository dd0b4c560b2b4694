package selection_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/scheduler/selection"
)

// parent returns the parent of a GPU selection that asks for GPU types, or for
// all of them.
func parent(gpuTypes ...string) *compute.Execution {
	return &compute.Execution{
		Kind: compute.KindSelection, Status: compute.StatusPending,
		Selection: &compute.Selection{GPUTypes: gpuTypes},
	}
}

func TestCandidates(t *testing.T) {
	tests := []struct {
		name   string
		asked  []string
		want   []string
		detail string
	}{
		{"all that exist", nil, []string{"gpu.a100", "gpu.h100", "gpu.t4"}, ""},
		{"those asked for, sorted", []string{"t4", "a100"}, []string{"gpu.a100", "gpu.t4"}, ""},
		{"each once, however spelt", []string{"t4", "gpu.t4", "T4"}, []string{"gpu.t4"}, ""},
		{"one does not exist", []string{"b200", "t4"}, []string{"gpu.t4"}, "No node reports b200."},
		{"none exists", []string{"l4", "b200"}, nil, "No node reports b200, l4."},
		{"nonsense", []string{"cpu", "gpu.", "t4.3x"}, nil, "No node reports cpu, gpu., t4.3x."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, detail := selection.Candidates([]string{"a100", "h100", "t4"}, parent(tt.asked...))
			if !slices.Equal(got, tt.want) || detail != tt.detail {
				t.Errorf("got %q, %q; want %q, %q", got, detail, tt.want, tt.detail)
			}
		})
	}
}

func TestCandidatesOfAClusterWithoutGPUs(t *testing.T) {
	got, detail := selection.Candidates(nil, parent())
	if got != nil || detail != "No node reports a GPU." {
		t.Errorf("got %q, %q", got, detail)
	}
}

func TestCandidatesAreBounded(t *testing.T) {
	var known, asked []string
	for i := range 40 {
		name := strings.Repeat("x", 30) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if i < 20 {
			known = append(known, name)
		}
		asked = append(asked, name)
	}
	got, detail := selection.Candidates(known, parent(asked...))
	if len(got) != selection.MaxCandidates || len(detail) > 512 || !strings.HasSuffix(detail, "...") {
		t.Errorf("%d candidates, a detail of %d bytes: %s", len(got), len(detail), detail)
	}
}

// TestCandidatesBeyondTheLimitAreNamed checks that the detail names GPU types
// beyond the limit.
func TestCandidatesBeyondTheLimitAreNamed(t *testing.T) {
	var known []string
	for i := range selection.MaxCandidates + 2 {
		known = append(known, "type_"+string(rune('a'+i)))
	}
	got, detail := selection.Candidates(known, parent())
	if want := "At most 16 are tried, not gpu.type_q, gpu.type_r."; len(got) != selection.MaxCandidates || detail != want {
		t.Errorf("%d candidates, detail %q, want %q", len(got), detail, want)
	}
}

// done returns a run that completed in t for some micro-credits.
func done(profile string, t time.Duration, credits compute.Credits) compute.Candidate {
	return ran(profile, compute.CandidateRun{Status: compute.StatusCompleted, Duration: t, Credits: credits})
}

// ran returns a GPU type with its runs.
func ran(profile string, runs ...compute.CandidateRun) compute.Candidate {
	return compute.Candidate{Profile: profile, Runs: runs}
}

func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	usual := []compute.Candidate{
		done("gpu.a100", 11_000*ms, 6050), done("gpu.h100", 6100*ms, 5490), done("gpu.l40s", 14_000*ms, 5600), done("gpu.t4", 50_000*ms, 5000),
	}
	failed := ran("gpu.t4", compute.CandidateRun{Status: compute.StatusFailed, Reason: compute.ReasonOutOfMemory, Duration: ms})
	running := ran("gpu.l4", compute.CandidateRun{Status: compute.StatusRunning})
	tests := []struct {
		name      string
		objective compute.Objective
		rows      []compute.Candidate
		best      int
		pareto    []bool
		reason    string
	}{
		{
			"fastest", compute.ObjectiveFastest, usual, 1,
			[]bool{false, true, false, true},
			"h100 finished in 6.1 s for 0.00549 credits: 1.8 × faster than the next (a100), 1.1 × the price of the cheapest (t4).",
		},
		{
			"cheapest", compute.ObjectiveCheapest, usual, 3,
			[]bool{false, true, false, true},
			"t4 finished in 50.0 s for 0.005 credits: 8.2 × the time of the fastest (h100), the cheapest (h100 costs 1.1 × as much).",
		},
		{
			"balanced", compute.ObjectiveBalanced, usual, 1,
			[]bool{false, true, false, true},
			"h100 finished in 6.1 s for 0.00549 credits: 1.8 × faster than the next (a100), 1.1 × the price of the cheapest (t4).",
		},
		{"nothing", compute.ObjectiveBalanced, nil, -1, nil, "Nothing to recommend: no GPU type has completed."},
		{
			"none completed", compute.ObjectiveFastest,
			[]compute.Candidate{failed, running},
			-1,
			[]bool{false, false},
			"Nothing to recommend: no GPU type has completed; t4 is failed (out_of_memory), l4 is running.",
		},
		{
			"one completed", compute.ObjectiveFastest,
			[]compute.Candidate{failed, done("gpu.h100", 250*ms, 225), running},
			1,
			[]bool{false, true, false},
			"h100 finished in 0.250 s for 0.000225 credits, the only GPU type that completed; not compared: t4 is failed (out_of_memory), l4 is running.",
		},
		{
			"equal products go to the cheaper", compute.ObjectiveBalanced,
			[]compute.Candidate{done("a", 2000*ms, 300), done("b", 3000*ms, 200)},
			1,
			[]bool{true, true},
			"b finished in 3.0 s for 0.0002 credits: 1.5 × the time of the fastest (a), the cheapest (a costs 1.5 × as much).",
		},
		{
			"equal in all go by name", compute.ObjectiveBalanced,
			[]compute.Candidate{done("b", 2000*ms, 300), done("a", 2000*ms, 300)},
			1,
			[]bool{true, true},
			"a finished in 2.0 s for 0.0003 credits: as fast as b, as cheap as b.",
		},
		{
			"equal price goes to the faster", compute.ObjectiveCheapest,
			[]compute.Candidate{done("a", 2001*ms, 300), done("b", 2000*ms, 300)},
			1,
			[]bool{false, true},
			"b finished in 2.0 s for 0.0003 credits: 1.0 × faster than the next (a), as cheap as a.",
		},
		{
			"free of charge", compute.ObjectiveBalanced,
			[]compute.Candidate{done("a", 2000*ms, 0), done("b", 1000*ms, 0)},
			1,
			[]bool{false, true},
			"b finished in 1.0 s for 0 credits: 2.0 × faster than the next (a), as cheap as a.",
		},
		{
			"products beyond 64 bits", compute.ObjectiveBalanced,
			[]compute.Candidate{done("a", 168*time.Hour, 1<<61), done("b", 168*time.Hour-1, 1<<61)},
			1,
			[]bool{false, true},
			"b finished in 604800.0 s for 2305843009213.693952 credits: 1.0 × faster than the next (a), as cheap as a.",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := selection.Judge(tt.objective, tt.rows)
			var pareto []bool
			for _, row := range got.Rows {
				pareto = append(pareto, row.Pareto)
			}
			if got.Best != tt.best || got.Reason != tt.reason || !slices.Equal(pareto, tt.pareto) {
				t.Errorf("got %d %v %s\nwant %d %v %s", got.Best, pareto, got.Reason, tt.best, tt.pareto, tt.reason)
			}
		})
	}
}

func TestJudgeScores(t *testing.T) {
	rows := []compute.Candidate{
		done("a", 4*time.Second, 2_000_000), ran("b", compute.CandidateRun{Status: compute.StatusFailed}), done("c", time.Second, 8_000_000),
	}
	tests := []struct {
		objective compute.Objective
		want      []float64
	}{
		{compute.ObjectiveFastest, []float64{4, 0, 1}},
		{compute.ObjectiveCheapest, []float64{2, 0, 8}},
		{compute.ObjectiveBalanced, []float64{2, 0, 2}},
	}
	for _, tt := range tests {
		var got []float64
		for _, row := range selection.Judge(tt.objective, rows).Rows {
			got = append(got, row.Score)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: scores %v, want %v", tt.objective, got, tt.want)
		}
	}
}

// TestJudgeDoesNotDependOnTheOrder holds the ties: whichever way the rows are
// given, the same profile is recommended and the same ones are on the front.
func TestJudgeDoesNotDependOnTheOrder(t *testing.T) {
	rows := []compute.Candidate{
		done("d", 6, 4), done("a", 4, 6), done("c", 3, 8), done("b", 4, 6), done("e", 9, 9),
	}
	for _, objective := range []compute.Objective{compute.ObjectiveBalanced, compute.ObjectiveFastest, compute.ObjectiveCheapest} {
		want := map[compute.Objective]string{
			compute.ObjectiveBalanced: "d", compute.ObjectiveFastest: "c", compute.ObjectiveCheapest: "d",
		}[objective]
		for range rows {
			rows = append(rows[1:], rows[0])
			v := selection.Judge(objective, rows)
			if got := rows[v.Best].Profile; got != want {
				t.Errorf("%v: %s recommended, want %s", objective, got, want)
			}
			for i, row := range v.Rows {
				if row.Pareto == (rows[i].Profile == "e") {
					t.Errorf("%s: on the front %v", rows[i].Profile, row.Pareto)
				}
			}
		}
	}
}
