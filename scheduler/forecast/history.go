package forecast

import (
	"slices"

	"berth/compute"
)

// runTimes are the durations of finished executions as parts of their time
// limits, in 1/ratioOne, sorted. Without values any duration is possible.
type runTimes struct {
	ratios  []int32
	samples int
}

const ratioOne = 1 << 16

// kindOfRun groups executions whose durations are alike.
type kindOfRun struct {
	org     compute.OrgID
	profile string
}

// history is the durations of finished executions.
type history struct {
	kinds map[kindOfRun]*runTimes
	orgs  map[compute.OrgID]*runTimes
	all   *runTimes
}

// readHistory reads the newest executions that have ended.
func readHistory(v View) *history {
	h := &history{kinds: map[kindOfRun]*runTimes{}, orgs: map[compute.OrgID]*runTimes{}, all: &runTimes{}}
	n := 0
	for e := range v.Ended() {
		if n++; n > maxHistory {
			break
		}
		if !e.Ran || e.Timeout <= 0 || e.Timeout >= compute.Unlimited || e.PlacedAt.IsZero() {
			continue
		}
		held := e.FinishedAt.Sub(e.PlacedAt)
		ratio := int32(min(max(held.Milliseconds()*ratioOne/max(e.Timeout.Milliseconds(), 1), 1), 2*ratioOne))
		kind := kindOfRun{e.Org, e.Profile}
		if h.kinds[kind] == nil {
			h.kinds[kind] = &runTimes{}
		}
		if h.orgs[e.Org] == nil {
			h.orgs[e.Org] = &runTimes{}
		}
		for _, t := range []*runTimes{h.kinds[kind], h.orgs[e.Org], h.all} {
			t.ratios = append(t.ratios, ratio)
		}
	}
	for _, t := range h.kinds {
		t.sort()
	}
	for _, t := range h.orgs {
		t.sort()
	}
	h.all.sort()
	return h
}

func (t *runTimes) sort() {
	slices.Sort(t.ratios)
	t.samples = len(t.ratios)
}

// of returns the most specific durations for e with enough samples: of its
// organization and profile, of its organization, of all, or none.
func (h *history) of(e *compute.Execution) *runTimes {
	for _, t := range []*runTimes{h.kinds[kindOfRun{e.Org, e.Profile}], h.orgs[e.Org], h.all} {
		if t != nil && t.samples >= minSamples {
			return t
		}
	}
	return &runTimes{}
}

// draw returns how many more milliseconds an execution takes that has taken so
// many, from a uniform random number.
func (t *runTimes) draw(random uint64, limit, taken int64) int64 {
	limit = max(limit, 1)
	least, _ := slices.BinarySearch(t.ratios, int32(min(taken*ratioOne/limit, 4*ratioOne))+1)
	if left := t.ratios[least:]; len(left) > 0 {
		return max(int64(left[random%uint64(len(left))])*limit/ratioOne-taken, 1)
	}
	return max(int64(random%ratioOne)*(limit-taken)/ratioOne, 1) // Any length up to the limit.
}

// mix spreads the bits of x over a word (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
