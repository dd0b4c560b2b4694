package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// of returns an execution of an organization, the n-th in submit order.
func of(org, n, priority int, price compute.Price) *compute.Execution {
	e := execution(n, whole("t4", 1))
	e.Org, e.Priority, e.Price = orgID(org), priority, price
	return e
}

// numbers returns the executions of an order by their numbers.
func numbers(v scheduler.View) (out []int) {
	for e := range scheduler.Order(v) {
		out = append(out, int(e.SubmitIndex))
	}
	return out
}

func TestOrder(t *testing.T) {
	const hour = 3_600_000
	tests := []struct {
		name   string
		shares map[int]compute.Share
		queue  []*compute.Execution
		want   []int
	}{
		{"nothing waits", nil, nil, nil},
		{"age", nil, []*compute.Execution{of(1, 1, 0, 9), of(1, 2, 0, 9), of(1, 3, 0, 9)}, []int{1, 2, 3}},
		{
			"priority before share",
			map[int]compute.Share{1: {Used: 1e12}},
			[]*compute.Execution{of(2, 1, 50, 9), of(1, 2, 60, 9), of(2, 3, 0, 9)},
			[]int{2, 1, 3},
		},
		{
			"organizations take turns", nil,
			[]*compute.Execution{of(1, 1, 0, 9), of(1, 2, 0, 9), of(1, 3, 0, 9), of(2, 4, 0, 9), of(2, 5, 0, 9)},
			[]int{1, 4, 2, 5, 3},
		},
		{
			"a turn lasts by price", nil,
			[]*compute.Execution{of(1, 1, 0, 900), of(1, 2, 0, 900), of(2, 3, 0, 300), of(2, 4, 0, 300), of(2, 5, 0, 300), of(2, 6, 0, 300)},
			[]int{1, 3, 4, 5, 2, 6},
		},
		{
			"who has used less is first",
			map[int]compute.Share{1: {Used: 18 * hour}, 2: {Used: 1}},
			[]*compute.Execution{of(1, 1, 0, 9), of(2, 2, 0, 9), of(2, 3, 0, 9), of(2, 4, 0, 9)},
			[]int{2, 3, 1, 4},
		},
		{
			"for its weight",
			map[int]compute.Share{1: {Weight: 200}},
			[]*compute.Execution{of(1, 1, 0, 9), of(1, 2, 0, 9), of(1, 3, 0, 9), of(1, 4, 0, 9), of(2, 5, 0, 9), of(2, 6, 0, 9)},
			[]int{1, 5, 2, 3, 6, 4},
		},
		{
			"what is free of charge counts all the same", nil,
			[]*compute.Execution{of(1, 1, 0, 0), of(1, 2, 0, 0), of(2, 3, 0, 0)},
			[]int{1, 3, 2},
		},
		{
			"what a turn of a higher priority gave counts below", nil,
			[]*compute.Execution{of(1, 1, 9, 9), of(1, 2, 0, 9), of(2, 3, 0, 9)},
			[]int{1, 3, 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for org, share := range tt.shares {
				w.shares[orgID(org)] = share
			}
			w.submit(tt.queue...)
			if got := numbers(w.view()); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestOrderIsTheOneOfItsRules compares random queues, longer than the part of a line
// that is read at a time, with the rules written down a second time.
func TestOrderIsTheOneOfItsRules(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t)
		for org := range 4 {
			w.shares[orgID(org)] = compute.Share{Used: rng.Uint64N(1e13), Weight: 1 + rng.IntN(300)}
		}
		for n := range 300 {
			w.submit(of(rng.IntN(4), n+1, rng.IntN(3), compute.Price(rng.IntN(900))))
		}
		v := w.view()
		var want []int
		oracle := newTurnOracle(v)
		for e := oracle.next(); e != nil; e = oracle.next() {
			oracle.given(e)
			want = append(want, int(e.SubmitIndex))
		}
		if got := numbers(v); !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n%v, want\n%v", seed, got, want)
		}
	}
}

// TestOrganizationsGetTheirShare fills a cluster for two organizations that
// always have work: each must get GPUs by its weight, in whichever order they came.
func TestOrganizationsGetTheirShare(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 8), gpuNode(2, "t4", 8))
	w.shares[orgID(2)] = compute.Share{Weight: 300}
	for n := range 100 {
		w.submit(of(1+n/50, n+1, 0, 100))
	}
	w.pack()
	held := map[compute.OrgID]int{}
	for e := range w.live {
		held[w.known[e].Org]++
	}
	if got := fmt.Sprint(held[orgID(1)], held[orgID(2)]); got != "4 12" {
		t.Errorf("with weights 100 and 300 they hold %s of 16 GPUs, want 4 12", got)
	}
}

// TestQuotaHeadIsNotPassedForEver: an execution that waits for GPUs of a quota gets them
// although smaller work behind it would always fit.
func TestQuotaHeadIsNotPassedForEver(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 8))
	w.quotas = []compute.Quota{{Org: orgID(1), Tag: "red", MilliGPU: 2000}}
	red := func(n, gpus int) *compute.Execution {
		e := execution(n, whole("t4", gpus))
		e.Tags = []string{"red"}
		return e
	}
	w.submit(red(1, 1), red(2, 2), red(3, 1), red(4, 1))
	w.pack()
	if got := fmt.Sprint(w.reasons()); got != "map[2:quota_gpus 3:quota_gpus 4:quota_gpus]" {
		t.Errorf("waiting: %s", got)
	}
	w.finish(executionID(1))
	w.pack()
	if _, started := w.live[executionID(2)]; !started {
		t.Errorf("the head of the quota waits: %v", w.reasons())
	}
}
