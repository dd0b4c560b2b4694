package selection_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/scheduler/selection"
)

// submitted is when the selections of the tests begin.
const submitted = compute.Instant(1_000_000)

// at returns the instant so long after the submit.
func at(d time.Duration) compute.Instant { return submitted.Add(d) }

// run returns a sub-execution of the n-th type with a status.
func run(n int, status compute.Status, d time.Duration) compute.CandidateRun {
	r := compute.CandidateRun{Status: status, Duration: d, Price: 100}
	r.Execution.UUID[0] = byte(n)
	r.Credits = r.Price.Charge(d)
	if status.Terminal() {
		r.Finished = at(d)
	}
	if status == compute.StatusQueued {
		r.Reason = compute.ReasonGPUsBusy
	}
	return r
}

// steady returns the progress of a sub-execution that takes so long in all.
func steady(elapsed, whole time.Duration) selection.Progress {
	p := selection.Progress{Elapsed: elapsed}
	for i := 1; i <= 100; i++ {
		if at := whole * time.Duration(i) / 100; at <= elapsed {
			p.Points = append(p.Points, compute.ProgressPoint{Part: float64(i) / 100, At: at})
		}
	}
	return p
}

func TestStops(t *testing.T) {
	const (
		done    = compute.StatusCompleted
		running = compute.StatusRunning
		queued  = compute.StatusQueued
		failed  = compute.StatusFailed
		s       = time.Second
	)
	type live = selection.Live
	two := func(a, b compute.CandidateRun) []compute.Candidate {
		return []compute.Candidate{ran("gpu.a", a), ran("gpu.b", b)}
	}
	again := two(run(1, done, 310*s), run(2, queued, 0))
	again[1].Runs[0].Requeued = at(400 * s)
	third := []compute.Candidate{
		ran("gpu.a", run(1, done, 310*s)), ran("gpu.c", run(3, queued, 0)), ran("gpu.b", run(2, queued, 0)),
	}
	third[1].Runs[0].Requeued = at(400 * s)
	alone := []compute.Candidate{ran("gpu.b", run(2, queued, 0))}
	alone[0].Runs[0].Requeued = at(70 * time.Minute)
	repeated := two(run(1, running, 0), run(2, queued, 0))
	repeated[1].Runs = []compute.CandidateRun{run(3, done, 30*s), run(2, queued, 0)}
	tests := []struct {
		name string
		live live
		pace selection.Progress
		want string // Reason and the beginning of the detail.
	}{
		{"nothing has completed", live{Candidates: two(run(1, running, 0), run(2, running, 0))}, steady(30*s, 300*s), ""},
		{"beaten", live{Candidates: two(run(1, done, 10*s), run(2, running, 0))}, steady(30*s, 300*s), "stopped_early at 10 % after 30.0 s: it would take at least"},
		{"complete", live{Complete: true, Candidates: two(run(1, done, 10*s), run(2, running, 0))}, steady(30*s, 300*s), ""},
		{"about as good", live{Candidates: two(run(1, done, 30*s), run(2, running, 0))}, steady(20*s, 31*s), ""},
		{"too early to say", live{Candidates: two(run(1, done, 10*s), run(2, running, 0))}, steady(29*s, 300*s), ""},
		{"no progress printed", live{Candidates: two(run(1, done, 10*s), run(2, running, 0))}, selection.Progress{Elapsed: 500 * s}, ""},
		{"the other failed", live{Candidates: two(run(1, failed, 10*s), run(2, running, 0))}, steady(30*s, 300*s), ""},
		{"waits a minute", live{Now: at(369 * s), Candidates: two(run(1, done, 310*s), run(2, queued, 0))}, selection.Progress{}, ""},
		{"has waited", live{Now: at(370 * s), Candidates: two(run(1, done, 310*s), run(2, queued, 0))}, selection.Progress{}, "no_capacity no capacity within 1m0s of the others' end (gpus_busy)"},
		{"has a minute again after its attempt was lost", live{Now: at(459 * s), Candidates: again}, selection.Progress{}, ""},
		{"another one lost its attempt", live{Now: at(459 * s), Candidates: third}, selection.Progress{}, ""},
		{"has waited for that too", live{Now: at(460 * s), Candidates: again}, selection.Progress{}, "no_capacity no capacity within 1m0s of the others' end"},
		{"lost after more than an hour", live{Now: at(71 * time.Minute), Candidates: alone}, selection.Progress{}, ""},
		{"an hour after that", live{Now: at(130 * time.Minute), Candidates: alone}, selection.Progress{}, "no_capacity no capacity within 1h0m0s"},
		{"others go on", live{Now: at(60 * s), Candidates: two(run(1, running, 0), run(2, queued, 0))}, selection.Progress{}, ""},
		{"the only hope", live{Now: at(600 * s), Candidates: two(run(1, failed, 10*s), run(2, queued, 0))}, selection.Progress{}, ""},
		{"an hour", live{Now: at(time.Hour), Candidates: two(run(1, running, 0), run(2, queued, 0))}, selection.Progress{}, "no_capacity no capacity within 1h0m0s (gpus_busy)"},
		{"a repeat has an hour of its own", live{Repeats: 2, Now: at(time.Hour + 29*s), Candidates: repeated}, selection.Progress{}, ""},
		{"a repeat after its hour", live{Repeats: 2, Now: at(time.Hour + 30*s), Candidates: repeated}, selection.Progress{}, "deadline_passed not repeated within 1h0m0s (gpus_busy)"},
		{"before the deadline", live{Deadline: 90 * s, Now: at(89 * s), Candidates: two(run(1, done, 10*s), run(2, queued, 0))}, selection.Progress{}, ""},
		{"starved at the deadline", live{Deadline: 90 * s, Now: at(90 * s), Candidates: two(run(1, done, 10*s), run(2, queued, 0))}, selection.Progress{}, "no_capacity no capacity within 1m30s"},
		{"runs at the deadline", live{Deadline: 90 * s, Now: at(90 * s), Candidates: two(run(1, done, 10*s), run(2, running, 0))}, selection.Progress{Elapsed: 80 * s}, "deadline_passed still running at the deadline of 1m30s"},
		{"no answer at the deadline", live{Deadline: 90 * s, Now: at(95 * s), Candidates: two(run(1, running, 0), run(2, running, 0))}, selection.Progress{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.live.Created = submitted
			tt.live.Objective = compute.ObjectiveFastest
			tt.live.Progress = map[compute.ExecutionID]selection.Progress{run(2, 0, 0).Execution: tt.pace}
			got := ""
			for _, stop := range tt.live.Stops() {
				if stop.Execution != run(2, 0, 0).Execution {
					t.Errorf("%v is stopped", stop.Execution)
				}
				got += stop.Reason.String() + " " + stop.Detail
			}
			if !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConfidence(t *testing.T) {
	const s = time.Second
	near := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{done("a", 100*s, 1), done("b", 101*s, 1)})
	far := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{done("a", 100*s, 1), done("b", 200*s, 1)})
	alone := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{done("a", 100*s, 1)})
	live := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{
		done("a", 100*s, 1), done("b", 200*s, 1), ran("c", run(3, compute.StatusRunning, 0)),
	})
	if *near.Confidence < 0.5 || *near.Confidence > 0.65 || *far.Confidence < 0.99 || *far.Confidence > 1 {
		t.Errorf("confidence %v of a close result, %v of a clear one", *near.Confidence, *far.Confidence)
	}
	if alone.Confidence != nil || live.Confidence != nil {
		t.Error("a confidence without a comparison")
	}
	repeats := func(times ...time.Duration) (c compute.Candidate) {
		for _, d := range times {
			c.Runs = append(c.Runs, run(1, compute.StatusCompleted, d))
		}
		return c
	}
	steady := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{
		repeats(100*s, 101*s, 99*s, 100*s, 100*s), repeats(110*s, 111*s, 109*s, 110*s, 110*s),
	})
	noisy := selection.Judge(compute.ObjectiveFastest, []compute.Candidate{
		repeats(100*s, 160*s, 70*s, 130*s, 80*s), repeats(110*s, 150*s, 90*s, 140*s, 80*s),
	})
	if *steady.Confidence < 0.99 || *noisy.Confidence > 0.8 {
		t.Errorf("confidence %v of steady repeats, %v of noisy ones", *steady.Confidence, *noisy.Confidence)
	}
}
