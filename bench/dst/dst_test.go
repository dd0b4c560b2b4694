package dst_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/bench/dst"
	"berth/bench/usage"
	"berth/testsize"
)

var (
	seedFlag      = flag.Uint64("dst.seed", 0, "simulate this seed alone, as a violation names it")
	historiesFlag = flag.Int("dst.histories", 1, "simulate so many seeds from -dst.seed on, within -dst.time")
	timeFlag      = flag.Duration("dst.time", testsize.Pick(5*time.Second, time.Minute), "simulate fresh seeds for so much time of the processor")
)

// config returns the Config that replays a violation.
func config(seed uint64) dst.Config {
	return dst.Config{Seed: seed, Duration: time.Hour, Nodes: 5}
}

// simulate runs one seed and requires that every invariant holds.
func simulate(t *testing.T, seed uint64) dst.Report {
	t.Helper()
	r, err := dst.Run(t.Context(), config(seed))
	if err != nil {
		t.Fatalf("%v\nreplay it with: go test ./bench/dst -run TestInvariantsHold -dst.seed %d", err, seed)
	}
	return r
}

// TestInvariantsHold simulates fixed seeds and fresh ones. Two of the fixed seeds
// once released a circuit breaker that should have held. One released and engaged it
// in the same entry. The other recorded a returning node before a vanished one. With
// the last one, a node started an attempt while the leader was giving it up.
func TestInvariantsHold(t *testing.T) {
	began, hours := usage.CPU(), 0.0
	if *seedFlag != 0 {
		for n := range uint64(*historiesFlag) {
			if n == 0 || usage.CPU()-began < *timeFlag {
				t.Logf("seed %d after %v", *seedFlag+n, usage.CPU()-began)
				t.Logf("%+v", simulate(t, *seedFlag+n))
			}
		}
		return
	}
	for _, seed := range []uint64{1, 2, 3, 1015742296322727279, 12617206407784719985, 15140778040303514115} {
		r := simulate(t, seed)
		for what, n := range map[string]int{
			"executions": r.Executions, "lost attempts": r.Lost, "requeued attempts": r.Requeued,
			"retried attempts": r.Retried, "attempts without a start": r.Unstarted,
			"crashes": r.Crashes, "partitions": r.Partitions, "elections": r.Elections,
			"restored snapshots": r.Restores, "stale reports": r.StaleReports, "repeated requests": r.Repeats,
			"lost messages": r.Dropped, "messages twice": r.Duplicated, "compared hashes": r.Compared,
		} {
			if n == 0 {
				t.Errorf("seed %d has seen no %s: it proves little", seed, what)
			}
		}
	}
	for began = usage.CPU(); usage.CPU()-began < *timeFlag; hours += config(0).Duration.Hours() {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		simulate(t, seed)
	}
	t.Logf("%.0f cluster-hours per hour of the processor", hours/(usage.CPU()-began).Hours())
}

func TestSeedReplays(t *testing.T) {
	first, second := simulate(t, 4), simulate(t, 4)
	if first != second {
		t.Errorf("the same seed gave\n%+v and\n%+v", first, second)
	}
	if other := simulate(t, 5); other.State == first.State {
		t.Error("another seed gave the same state")
	}
}

func TestConfig(t *testing.T) {
	good := config(1)
	for name, change := range map[string]func(*dst.Config){
		"few nodes":   func(c *dst.Config) { c.Nodes = 2 },
		"many nodes":  func(c *dst.Config) { c.Nodes = 1000 },
		"no duration": func(c *dst.Config) { c.Duration = 0 },
		"long":        func(c *dst.Config) { c.Duration = 10_000 * time.Hour },
		"unknown bug": func(c *dst.Config) { c.Bug = 200 },
	} {
		c := good
		change(&c)
		if _, err := dst.Run(t.Context(), c); err == nil {
			t.Errorf("%s: it is simulated", name)
		}
	}
	for _, bug := range dst.Bugs() {
		if got, err := dst.ParseBug(bug.String()); err != nil || got != bug {
			t.Errorf("%v is parsed as %v, %v", bug, got, err)
		}
	}
	if _, err := dst.ParseBug("beetle"); err == nil {
		t.Error("a beetle is a bug")
	}
}

func TestOrder(t *testing.T) {
	waits := make([]time.Duration, 500)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range waits {
		waits[i] = time.Duration(random.IntN(40)) * time.Second
	}
	order := dst.Order(waits)
	sorted := slices.IsSortedFunc(order, func(a, b int) int {
		if waits[a] != waits[b] {
			return int(waits[a] - waits[b])
		}
		return a - b
	})
	if len(order) != len(waits) || !sorted {
		t.Errorf("%d events happened, in the order of their times: %v", len(order), sorted)
	}
}
