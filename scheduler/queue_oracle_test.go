package scheduler_test

import (
	"math/big"
	"slices"

	"berth/compute"
)

// turnOracle is the order of the queue written down a second time: each turn
// looks at everything that waits.
type turnOracle struct {
	left []*compute.Execution
	used map[compute.OrgID]*big.Rat // For its weight.
	per  map[compute.OrgID]int64
}

func newTurnOracle(v *fakeView) *turnOracle {
	o := &turnOracle{left: slices.Clone(v.queue), used: map[compute.OrgID]*big.Rat{}, per: map[compute.OrgID]int64{}}
	for _, e := range v.queue {
		s := v.Share(e.Org)
		o.per[e.Org] = int64(s.Weight)
		o.used[e.Org] = big.NewRat(int64(s.Used)+int64(s.Rate)*3_600_000, int64(s.Weight))
	}
	return o
}

// next takes the execution whose turn it is, nil when none is left.
func (o *turnOracle) next() *compute.Execution {
	if len(o.left) == 0 {
		return nil
	}
	e := slices.MinFunc(o.left, func(a, b *compute.Execution) int {
		if a.Priority != b.Priority {
			return b.Priority - a.Priority
		}
		if c := o.used[a.Org].Cmp(o.used[b.Org]); c != 0 {
			return c
		}
		return int(a.SubmitIndex) - int(b.SubmitIndex)
	})
	o.left = slices.DeleteFunc(slices.Clone(o.left), func(f *compute.Execution) bool { return f == e })
	return e
}

func (o *turnOracle) given(e *compute.Execution) {
	more := big.NewRat(int64(e.FairPrice())*3_600_000, o.per[e.Org])
	o.used[e.Org] = new(big.Rat).Add(o.used[e.Org], more)
}

// quotaOracle is the rules of quotas written down a second time. It counts all loads
// again for each question.
type quotaOracle struct {
	view     *fakeView
	placed   []*compute.Execution
	promised map[compute.Quota]int64
}

func newQuotaOracle(v *fakeView) *quotaOracle {
	return &quotaOracle{view: v, placed: slices.Clone(v.live), promised: map[compute.Quota]int64{}}
}

func (o *quotaOracle) place(e *compute.Execution) { o.placed = append(o.placed, e) }

// admits reports whether e may get a place. In these worlds nobody knows when
// anything ends: nothing passes one that waits for GPUs.
func (o *quotaOracle) admits(e *compute.Execution) bool {
	short := false
	for _, q := range o.of(e) {
		attempts, milli := 0, o.promised[q]
		for _, f := range o.placed {
			if q.AppliesTo(f) {
				attempts++
				milli += gpusOf(f)
			}
		}
		if q.Concurrent > 0 && attempts >= q.Concurrent {
			return false
		}
		short = short || q.MilliGPU > 0 && gpusOf(e) > 0 && milli+gpusOf(e) > q.MilliGPU
	}
	if short {
		o.promise(e)
	}
	return !short
}

// promise keeps GPUs for e in all its quotas, unless they are kept for another.
func (o *quotaOracle) promise(e *compute.Execution) {
	limited := slices.DeleteFunc(o.of(e), func(q compute.Quota) bool { return q.MilliGPU == 0 })
	for _, q := range limited {
		if o.promised[q] > 0 || gpusOf(e) > q.MilliGPU {
			return
		}
	}
	for _, q := range limited {
		o.promised[q] = gpusOf(e)
	}
}

func (o *quotaOracle) of(e *compute.Execution) []compute.Quota {
	return slices.DeleteFunc(o.view.Quotas(e.Org), func(q compute.Quota) bool { return !q.AppliesTo(e) })
}

func gpusOf(e *compute.Execution) int64 { return e.Request.HeldMilliGPU() }
