package leader

import (
	"fmt"
	"testing"
	"time"

	"berth/compute"
)

// TestMissingReplicas is which replicas a service misses.
func TestMissingReplicas(t *testing.T) {
	const now = compute.Instant(1000)
	for name, test := range map[string]struct {
		replicas int
		stop     compute.Stop
		slots    []compute.Slot
		want     string
		next     compute.Instant
	}{
		"none yet":       {replicas: 2, want: "[1 2]"},
		"one runs":       {replicas: 2, slots: []compute.Slot{{Number: 1, Live: true}}, want: "[2]"},
		"all run":        {replicas: 1, slots: []compute.Slot{{Number: 1, Live: true}}, want: "[]"},
		"one waits":      {replicas: 1, slots: []compute.Slot{{Number: 1, NextAt: 1001}}, want: "[]", next: 1001},
		"one has waited": {replicas: 1, slots: []compute.Slot{{Number: 1, NextAt: 1000}}, want: "[1]"},
		"one is done":    {replicas: 1, slots: []compute.Slot{{Number: 1, Done: true}}, want: "[]"},
		"scaled down":    {replicas: 1, slots: []compute.Slot{{Number: 1, Live: true}, {Number: 2}}, want: "[]"},
		"scaled to none": {replicas: 0, want: "[]"},
		"stopped":        {replicas: 2, stop: compute.StopGraceful, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := &compute.Execution{
				Stop: test.stop, Service: &compute.Service{Replicas: test.replicas, Slots: test.slots},
			}
			made := byte(0)
			cmd := missingReplicas(parent, now, func() compute.UUID { made++; return compute.UUID{made} })
			numbers, ids := []int{}, map[compute.ExecutionID]bool{}
			for _, r := range cmd.Replicas {
				numbers = append(numbers, r.Number)
				ids[r.ID] = true
			}
			if fmt.Sprint(numbers) != test.want || len(ids) != len(numbers) {
				t.Errorf("it misses %v, with %d identifiers, want %s", numbers, len(ids), test.want)
			}
			if _, next := parent.Service.Missing(now); next != test.next {
				t.Errorf("the next one is due at %v, want %v", next, test.next)
			}
		})
	}
}

// TestBackoff is how long a replica waits after so many ends in a row.
func TestBackoff(t *testing.T) {
	s := compute.Service{BackoffFirst: compute.DefaultBackoffFirst, BackoffMost: compute.DefaultBackoffMost}
	for crashes, want := range map[int]time.Duration{
		1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 5: 160 * time.Second,
		6: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := s.Backoff(crashes); got != want {
			t.Errorf("after %d it waits %s, want %s", crashes, got, want)
		}
	}
}
