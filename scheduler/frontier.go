package scheduler

import (
	"cmp"
	"slices"
)

// segments is about how many parts a frontier has.
const segments = 8

// frontier is how much GPU an amount of vCPU, or of memory, feeds at most. The
// demand asks for little beside some GPUs and for much beside others, so the
// first part of an amount feeds more than the last. The frontier is the minimum
// of straight lines, each of one part of the demand, the most frugal first. It
// has no lines when the demand asks for none of the amount.
type frontier []ray

// ray is one straight line of a frontier.
type ray struct {
	slope int64 // Thousandths of a GPU with one more thousandth of a vCPU or MiB.
	level int64 // Part of the GPU that is fed without any.
}

// feeds returns how much of the free GPU beside an amount it feeds.
func (f frontier) feeds(gpu, amount int64) int64 {
	least := gpu << places
	for i := range f {
		least = min(least, fed(amount, f[i].slope)+gpu*f[i].level)
	}
	return least
}

// frontier returns the frontier for the amount that need returns of each
// request.
func (d *demand) frontier(need func(s *share) float64) frontier {
	var asking []share
	for i := range d.shares {
		if s := &d.shares[i]; s.gpu > 0 {
			asking = append(asking, *s)
		}
	}
	slices.SortStableFunc(asking, func(a, b share) int {
		return cmp.Compare(float64(need(&a)/a.gpu), float64(need(&b)/b.gpu))
	})
	var out frontier
	var gpu, amount float64         // Sums over the parts before this one.
	var partGPU, partAmount float64 // Sums over this part.
	for i := range asking {
		s := &asking[i]
		partGPU += float64(s.gpu * s.count)
		partAmount += float64(need(s) * s.count)
		if partGPU*segments < d.gpu && i < len(asking)-1 {
			continue
		}
		if partAmount > 0 {
			level := float64(gpu - float64(amount*float64(partGPU/partAmount)))
			out = append(out, ray{
				slope: slope(partGPU, partAmount),
				level: int64(max(level, 0) / d.gpu * one),
			})
		}
		gpu, amount = gpu+partGPU, amount+partAmount
		partGPU, partAmount = 0, 0
	}
	return out
}
