package scheduler_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/scheduler/forecast"
)

// quota sets the quota of the organization of a simulation.
func (s *simulation) quota(milliGPU int64) {
	s.must(command.SetQuota{
		Op:    command.Op{ID: compute.OpID{UUID: s.uuid()}},
		Actor: command.Actor{Root: true}, Quota: compute.Quota{Org: s.actor.Org, MilliGPU: milliGPU},
	})
}

// waits checks which of some executions wait, and why.
func (s *simulation) waits(want map[compute.ExecutionID]compute.Reason) {
	s.tb.Helper()
	for id, reason := range want {
		e := s.get(id)
		if got := e.Reason; got != reason || (e.Epoch == 0) != (reason != compute.ReasonNone) {
			s.tb.Errorf("%s with a limit of %s: reason %q, want %q", e.Profile, e.Timeout, got, reason)
		}
	}
}

// TestQuotaIsNotIdleForWhatEndsBefore holds that GPUs of a quota that are kept for a
// waiting execution serve those behind it that end before it can have them, and no others.
func TestQuotaIsNotIdleForWhatEndsBefore(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"t4", "t4", "t4", "t4"})
	s.quota(3000)
	running := s.submit("t4", limited(300*time.Second))
	s.submit("t4", limited(500*time.Second))
	s.pack()
	head := s.submit("t4.2x", limited(60*time.Second))
	long := s.submit("t4", limited(301*time.Second))
	short := s.submit("t4", limited(60*time.Second))
	s.pack()
	s.waits(map[compute.ExecutionID]compute.Reason{
		head: compute.ReasonQuotaGPUs, long: compute.ReasonQuotaGPUs, short: compute.ReasonNone,
	})
	limit := s.get(running).EndsBy(s.get(running).PlacedAt)
	if at := s.startOf(head); at.Sub(limit) > time.Second {
		t.Errorf("the head starts %s after the quota was free for it", at.Sub(limit))
	}
}

// TestPromisedPlaceKeepsQuota holds that work behind an execution that waits for a place
// does not take the quota that it needs there. Otherwise it would find the place free and
// the quota full, and then the other way round, for ever.
func TestPromisedPlaceKeepsQuota(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"t4"})
	greedy := s.actor
	running := s.submit("t4.4x", limited(300*time.Second))
	s.pack()
	s.actor = s.user("bob")
	s.quota(4000)
	head := s.submit("t4.4x", limited(60*time.Second))
	long := s.submit("t4", limited(2*time.Hour))
	s.pack()
	s.waits(map[compute.ExecutionID]compute.Reason{head: compute.ReasonGPUsBusy, long: compute.ReasonQuotaGPUs})
	limit := s.get(running).EndsBy(s.get(running).PlacedAt)
	if at := s.startOf(head); at.Sub(limit) > time.Second {
		t.Errorf("the head starts %s after the node was free for it", at.Sub(limit))
	}
	s.actor = greedy
}

// TestHardwareQuotas holds that work on hardware at its limit waits and blocks no other, and that
// work of several types gets one that its organization may use, within one plan and in what-if answers.
func TestHardwareQuotas(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"h100", "h100", "h100", "h100"}, []string{"a100"})
	s.must(command.SetFormat{Term: 1, Format: format.Newest})
	want := map[compute.ExecutionID]compute.Reason{s.submit("a100"): compute.ReasonProfileDenied}
	for _, q := range []compute.Quota{
		{Profile: "gpu.t4", Concurrent: 2}, {Profile: "gpu.h100", MilliGPU: 1500}, {Profile: "gpu.a100", Denied: true},
	} {
		q.Org = s.actor.Org
		s.must(command.SetQuota{
			Op: command.Op{ID: compute.OpID{UUID: s.uuid()}}, Actor: command.Actor{Root: true}, Quota: q,
		})
	}
	for _, reason := range []compute.Reason{
		compute.ReasonNone, compute.ReasonNone, compute.ReasonNone, compute.ReasonProfileConcurrency,
	} {
		want[s.submit("any")] = reason // Two on a t4, one on an h100, and none on the a100.
	}
	want[s.submit("t4")] = compute.ReasonProfileConcurrency
	want[s.submit("h100")] = compute.ReasonQuotaGPUs
	want[s.submit("h100.500m")] = compute.ReasonQuotaGPUs // Half a GPU is promised to the one before it.
	want[s.submit("cpu")] = compute.ReasonNone
	forecasted, err := forecast.WhatIf(t.Context(), s.machine.View(), compute.WhatIf{})
	if err != nil || len(forecasted.Starts) != 4 {
		t.Errorf("%d are said to start, want 4; %v", len(forecasted.Starts), err)
	}
	s.pack()
	s.waits(want)
}

// TestForecastCountsHardwareQuotas holds that work which accepts several types is not said to start
// on one whose quota is used up or denied, and that what it gets there counts.
func TestForecastCountsHardwareQuotas(t *testing.T) {
	const soon, long = time.Minute, 10 * time.Hour
	for name, test := range map[string]struct {
		quotas []compute.Quota
		soon   []bool // Whether each one that waits is to start at once.
	}{
		"no quota":                 {nil, []bool{true, true, true}},
		"one at once":              {[]compute.Quota{{Profile: "gpu.t4", Concurrent: 1}}, []bool{false, false, false}},
		"two at once":              {[]compute.Quota{{Profile: "gpu.t4", Concurrent: 2}}, []bool{true, false, false}},
		"GPUs":                     {[]compute.Quota{{Profile: "gpu.t4", MilliGPU: 3000}}, []bool{true, true, false}},
		"of a size":                {[]compute.Quota{{Profile: "gpu.t4.2x", Concurrent: 1}}, []bool{true, true, true}},
		"denied":                   {[]compute.Quota{{Profile: "gpu.t4", Denied: true}}, []bool{false, false, false}},
		"the other one is limited": {[]compute.Quota{{Profile: "gpu.h100", Concurrent: 1}}, []bool{true, true, true}},
		"each is limited": {
			[]compute.Quota{{Profile: "gpu.h100", MilliGPU: 1000}, {Profile: "gpu.t4", Concurrent: 3}}, []bool{true, true, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"h100"})
			s.must(command.SetFormat{Term: 1, Format: format.Newest})
			s.submit("t4", limited(long))
			s.submit("h100", limited(long))
			s.pack()
			for _, q := range test.quotas {
				q.Org = s.actor.Org
				s.must(command.SetQuota{
					Op: command.Op{ID: compute.OpID{UUID: s.uuid()}}, Actor: command.Actor{Root: true}, Quota: q,
				})
			}
			for i, want := range test.soon {
				id := s.submit("any", limited(long), func(e *compute.Execution) {
					e.GPUTypes = []compute.AcceptedType{{Type: "h100"}, {Type: "t4"}}
				})
				all := forecast.EstimateQueue(s.machine.View())
				got := forecast.Estimate(s.machine.View(), id, all)
				if got == nil || (got.P50 < soon) != want || (got.P90 < soon) != want {
					t.Errorf("the estimate of number %d is %+v, want soon: %v", i, got, want)
				}
			}
		})
	}
}

// TestQuotaPromisesNothingToWhatAnotherRefuses: an execution that waits for a place
// among the attempts of its key delays no others, and its reason says so.
func TestQuotaPromisesNothingToWhatAnotherRefuses(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 8))
	w.quotas = []compute.Quota{
		{Org: orgID(1), Tag: "red", MilliGPU: 2000},
		{Org: orgID(1), Key: keyID(1), Concurrent: 1},
	}
	of := func(n, gpus int, key compute.KeyID) *compute.Execution {
		e := execution(n, whole("t4", gpus))
		e.Tags, e.Key = []string{"red"}, key
		return e
	}
	w.submit(of(1, 1, keyID(1)))
	w.pack()
	w.submit(of(2, 2, keyID(1)), of(3, 1, keyID(2)))
	w.pack()
	got := w.reasons()
	if got[2] != compute.ReasonKeyConcurrency || len(got) != 1 {
		t.Errorf("waiting: %v, want the second alone, for its key", got)
	}
}
