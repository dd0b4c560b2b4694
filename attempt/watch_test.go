package attempt_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
)

// check is one check of a node: when, and when it was last heard.
type check struct{ at, heard time.Duration }

// TestSilence is how long a node counts as silent after checks at seconds.
func TestSilence(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		checks []check
		want   time.Duration
	}{
		{"the first check gives the full time", []check{{100 * s, 1 * s}}, 0},
		{"heard since", []check{{1 * s, 0}, {2 * s, 1900 * time.Millisecond}}, 100 * time.Millisecond},
		{"silent", []check{{1 * s, 1 * s}, {2 * s, 1 * s}, {3 * s, 1 * s}}, 2 * s},
		{"silent, then heard", []check{{1 * s, 1 * s}, {2 * s, 1 * s}, {3 * s, 3 * s}}, 0},
		{"the leader stood still", []check{{1 * s, 1 * s}, {61 * s, 1 * s}}, attempt.MaxStep},
		{"the leader stood still and reads what was sent", []check{{1 * s, 1 * s}, {61 * s, 60 * s}}, s},
		{"heard long ago, seen only now", []check{{1 * s, 1 * s}, {61 * s, 30 * s}}, attempt.MaxStep},
		{"a clock that goes back", []check{{9 * s, 1 * s}, {5 * s, 1 * s}}, 0},
		{"a report from the future", []check{{1 * s, 1 * s}, {2 * s, 3 * s}}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, got := attempt.NewWatch(), time.Duration(0)
			for _, l := range test.checks {
				w.Look(l.at)
				got = w.Silent(compute.NodeID{}, l.heard)
			}
			if got != test.want {
				t.Errorf("silent for %v, want %v", got, test.want)
			}
		})
	}
}

// TestSilenceIsNeverLonger: a silence is never counted longer than it is, however late
// the checks are.
func TestSilenceIsNeverLonger(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := attempt.NewWatch()
		now, heard := time.Duration(0), time.Duration(0)
		for range 200 {
			now += time.Duration(random.IntN(5000)) * time.Millisecond
			if random.IntN(4) == 0 {
				heard = now - time.Duration(random.Int64N(int64(now-heard)+1))
			}
			w.Look(now)
			if got := w.Silent(compute.NodeID{}, heard); got > now-heard {
				t.Fatalf("seed %d: counted %v, and it was %v", seed, got, now-heard)
			}
		}
	}
}
