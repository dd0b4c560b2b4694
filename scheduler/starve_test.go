package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// TestNobodyStarvesInRandomWorlds runs clusters of several GPU types with more work than
// they can take. The organizations have different weights, quotas and past use. Small
// work never stops coming, and work that needs a whole node or most of a quota starts
// all the same. An execution waits at most as long as its organization would need, with
// its share of the time, to execute its whole queue one at a time, each as long as the
// longest may take.
func TestNobodyStarvesInRandomWorlds(t *testing.T) {
	closest, large := 0.0, 0
	for seed := range uint64(8) {
		m := newMarket(t, seed)
		for range 500 {
			m.refill()
			if !m.step() {
				t.Fatalf("seed %d: nothing runs", seed)
			}
			v := m.machine.View()
			for e := range v.Queue() {
				waited, bound := v.Now().Sub(e.CreatedAt), m.bound(e.Org)
				if closest = max(closest, waited.Seconds()/bound.Seconds()); waited > bound {
					t.Fatalf("seed %d: %s of a share of 1/%d waits longer than %s for %v",
						seed, e.Profile, m.weights/v.Share(e.Org).Weight, bound, e.Reason)
				}
			}
		}
		large += m.largeStarted()
	}
	t.Logf("the longest wait was %.2f of its bound; %d executions with four GPUs have started", closest, large)
	if large < 500 {
		t.Errorf("only %d executions with four GPUs have started: the worlds are too easy", large)
	}
}

// market is a cluster on which organizations compete.
type market struct {
	*simulation

	rng     *rand.Rand
	orgs    []command.Actor
	weights int // The sum of theirs.
}

const (
	marketQueue   = 6 // Executions of each organization that wait.
	marketLongest = 12 * time.Minute
)

// bound returns how long an execution of an organization may wait.
func (m *market) bound(org compute.OrgID) time.Duration {
	return marketQueue * marketLongest * time.Duration(m.weights) / time.Duration(m.machine.View().Share(org).Weight)
}

func newMarket(t *testing.T, seed uint64) *market {
	rng := rand.New(rand.NewPCG(seed, 21))
	m := &market{rng: rng, simulation: newSimulation(t,
		[]string{"t4", "t4", "t4", "t4"}, []string{"t4", "t4", "t4", "t4"}, []string{"h100", "h100", "h100", "h100", "t4"})}
	m.early = func() int64 { return 300 + rng.Int64N(701) }
	m.orgs = []command.Actor{m.actor, m.user("bob"), m.user("cyd"), m.user("dan")}
	for i, org := range m.orgs {
		q := compute.Quota{Org: org.Org, Weight: []int{50, 100, 100, 200}[rng.IntN(4)]}
		q.Concurrent = []int{0, 3, 6}[rng.IntN(3)]
		if i > 0 {
			q.MilliGPU = []int64{0, 4000, 5000, 6000}[rng.IntN(4)]
		}
		m.grant(q)
		m.weights += q.Weight
		m.grant(compute.Quota{Org: org.Org, Tag: "red", MilliGPU: 4000})
	}
	return m
}

func (m *market) grant(q compute.Quota) {
	m.must(command.SetQuota{Op: command.Op{ID: compute.OpID{UUID: m.uuid()}}, Actor: command.Actor{Root: true}, Quota: q})
}

// refill gives each organization something to wait for.
func (m *market) refill() {
	waits := map[compute.OrgID]int{}
	for e := range m.machine.View().Queue() {
		waits[e.Org]++
	}
	profiles := []string{"t4", "t4", "t4.500m", "h100", "h100", "t4.2x", "t4.4x", "h100.4x", "cpu.4x"}
	for _, org := range m.orgs {
		m.actor = org
		for range marketQueue - waits[org.Org] {
			limit := limited(time.Duration(1+m.rng.IntN(10)) * time.Minute)
			m.submit(profiles[m.rng.IntN(len(profiles))], limit, func(e *compute.Execution) {
				if m.rng.IntN(3) == 0 {
					e.Tags = []string{"red"}
				}
			})
		}
	}
}

// largeStarted returns how many executions with four GPUs have got a place.
func (m *market) largeStarted() int {
	n := 0
	for _, org := range m.orgs {
		for e := range m.machine.View().History(org.Org, fsm.HistoryFilter{}) {
			if e.Epoch > 0 && e.Request.GPUs == 4 {
				n++
			}
		}
	}
	return n
}

// TestEachTypeHasAHead holds that the first blocked execution of a second GPU
// type has a place reserved beside that of the first: small work behind both
// delays neither beyond its limits.
func TestEachTypeHasAHead(t *testing.T) {
	for _, crowd := range []int{0, 60} {
		s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"h100", "h100", "h100", "h100"})
		var limits [2]compute.Instant
		for i, gpuType := range []string{"t4", "h100"} {
			for n := range 4 {
				id := s.submit(gpuType, limited(time.Duration(300+60*n)*time.Second))
				s.pack()
				limits[i] = max(limits[i], s.get(id).EndsBy(s.get(id).PlacedAt))
			}
		}
		heads := []compute.ExecutionID{s.submit("t4.4x", limited(time.Minute)), s.submit("h100.4x", limited(time.Minute))}
		rng := rand.New(rand.NewPCG(7, 7))
		for range crowd {
			s.submit([]string{"t4", "h100"}[rng.IntN(2)], limited(time.Duration(1+rng.IntN(60))*time.Minute))
		}
		for i, head := range heads {
			if at := s.startOf(head); at.Sub(limits[i]) > 2*time.Second {
				t.Errorf("with %d behind it head %d starts %s after its room is free at the latest", crowd, i, at.Sub(limits[i]))
			}
		}
	}
}

// TestHeadsThatTakeTurns: two organizations alternate as the first by fair share, each
// with work for a whole node, while a third never runs out of small work. All of their
// heads start.
func TestHeadsThatTakeTurns(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"})
	small, big := s.actor, []command.Actor{s.user("bob"), s.user("cyd")}
	var want []compute.ExecutionID
	for round := range 6 {
		s.actor = big[round%2]
		want = append(want, s.submit("t4.4x", limited(10*time.Minute)))
	}
	for range 400 {
		s.actor = small
		for s.machine.View().QueueLen() < 12 {
			s.submit("t4", limited(5*time.Minute))
		}
		s.step()
		if !slices.ContainsFunc(want, func(id compute.ExecutionID) bool { return s.get(id).Epoch == 0 }) {
			return
		}
	}
	left := 0
	for _, id := range want {
		if s.get(id).Epoch == 0 {
			left++
		}
	}
	t.Errorf("%d of %d executions for a whole node never start", left, len(want))
}
