package queue

import (
	"math/bits"

	"berth/compute"
)

const (
	// horizon is how long an organization's present attempts count ahead,
	// beside its past usage, in milliseconds. It makes a new placement count at
	// once.
	horizon = 3_600_000

	maxUsage = 1 << 62 // Sums stop here, so that none overflows.
)

// usage is the fair-share usage of an organization.
type usage struct {
	value  uint64 // Price × milliseconds.
	weight uint64
}

// compare compares value divided by weight, exactly.
func (s *usage) compare(o *usage) int {
	hi, lo := bits.Mul64(s.value, o.weight)
	hi2, lo2 := bits.Mul64(o.value, s.weight)
	switch {
	case hi != hi2:
		return sign(hi > hi2)
	case lo != lo2:
		return sign(lo > lo2)
	}
	return 0
}

func sign(above bool) int {
	if above {
		return 1
	}
	return -1
}

// add counts the usage of a rate within the horizon.
func (s *usage) add(rate compute.Price) {
	hi, lo := bits.Mul64(uint64(max(rate, 0)), horizon)
	if hi > 0 || lo > maxUsage {
		lo = maxUsage
	}
	s.value = min(s.value+lo, maxUsage)
}

// usages are the usages of one walk, including its placements.
type usages map[compute.OrgID]*usage

// of returns the usage of an organization.
func (u usages) of(v View, org compute.OrgID) *usage {
	s := u[org]
	if s == nil {
		share := v.Share(org)
		s = &usage{value: min(share.Used, maxUsage), weight: uint64(max(share.Weight, 1))}
		s.add(share.Rate)
		u[org] = s
	}
	return s
}
