package compute_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"berth/compute"
)

func sized(vcpu int) compute.Request { return compute.Request{VCPUMilli: int64(vcpu), MemoryMiB: 1} }

func TestMixIsLearnedInSteps(t *testing.T) {
	var l compute.Learner
	var at []int
	for i := 1; i <= 100_000; i++ {
		if l.Learn(sized(i % 7)) {
			at = append(at, i)
		}
	}
	want := "[16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536 98304]"
	if got := fmt.Sprint(at); got != want {
		t.Errorf("a new mix after %s arrivals, want %s", got, want)
	}
	if m := l.Mix(); m.Version != uint64(len(at)) || len(m.Shares) != 7 {
		t.Errorf("version %d of %d requests", m.Version, len(m.Shares))
	}
}

func TestMixIsNothingAtFirst(t *testing.T) {
	var l compute.Learner
	for range 15 {
		l.Learn(sized(1))
	}
	if m := l.Mix(); m.Version != 0 || len(m.Shares) != 0 {
		t.Errorf("after 15 arrivals the mix is %+v", m)
	}
}

func TestMixFollowsDemand(t *testing.T) {
	var l compute.Learner
	for range compute.MaxMixCount {
		l.Learn(sized(1))
	}
	for range 3 * compute.MaxMixCount {
		l.Learn(sized(2))
	}
	m := l.Mix()
	old, all := uint64(0), uint64(0)
	for _, s := range m.Shares {
		all += s.Count
		if s.Request.VCPUMilli == 1 {
			old = s.Count
		}
	}
	if old*10 > all || all > compute.MaxMixCount {
		t.Errorf("%d of %d counts are of what came long ago", old, all)
	}
}

// TestMixIsBounded checks that frequent requests stay and the others are
// forgotten, however many different requests come.
func TestMixIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var l compute.Learner
	for i := range 30_000 {
		l.Learn(sized(1))
		l.Learn(sized(10 + rng.IntN(1_000_000)))
		if n := l.NumArrivals(); n > compute.MaxMixShapes {
			t.Fatalf("%d requests are counted after %d arrivals", n, 2*i)
		}
	}
	var frequent, total uint64
	for _, a := range l.AllArrivals() {
		total += a.Count
		if a.Request.VCPUMilli == 1 {
			frequent = a.Count
		}
	}
	if frequent < 2*total/3 {
		t.Errorf("half of what came has %d of %d counts", frequent, total)
	}
}

func TestRequestKeyTellsRequestsApart(t *testing.T) {
	requests := []compute.Request{
		{},
		{VCPUMilli: 1},
		{MemoryMiB: 1},
		{GPUs: 1},
		{GPUs: 1, MilliGPU: 1},
		{GPUType: "a", GPUs: 1},
		{GPUType: "a", GPUs: 1, MIG: "1g_5gb"},
		{GPUs: 1, AnyOf: []string{"a", "b"}},
		{GPUs: 1, AnyOf: []string{"b"}},
		{GPUs: 11, MilliGPU: 1},
		{GPUs: 1, MilliGPU: 11},
	}
	seen := map[string]int{}
	for i := range requests {
		key := requests[i].Key()
		if first, twice := seen[key]; twice {
			t.Errorf("%+v and %+v are both %q", requests[first], requests[i], key)
		}
		seen[key] = i
	}
}

func TestGPUIsOneOfSeveralTypes(t *testing.T) {
	g := compute.GPU{Type: "h100"}
	tests := []struct {
		name string
		ask  compute.Request
		want bool
	}{
		{"the type", compute.Request{GPUType: "h100", GPUs: 1}, true},
		{"another type", compute.Request{GPUType: "a100", GPUs: 1}, false},
		{"any type", compute.Request{GPUs: 1}, true},
		{"one of two", compute.Request{GPUs: 1, AnyOf: []string{"a100", "h100"}}, true},
		{"none of two", compute.Request{GPUs: 1, AnyOf: []string{"a100", "t4"}}, false},
		{"a slice of any type", compute.Request{GPUs: 1, MIG: "1g_5gb"}, false},
		{"no GPU at all", compute.Request{VCPUMilli: 1}, false},
	}
	for _, tt := range tests {
		if got := g.Is(tt.ask); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
