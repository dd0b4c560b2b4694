package scheduler

import (
	"math"

	"berth/compute"
	"berth/compute/capacity"
)

// maxGroups is how many groups of multi-GPU work are protected: those that ask
// for most.
const maxGroups = 16

// maxLevel is the level of plenty at which taking an opening costs nothing.
const maxLevel = 14

// group is work that asks for the same number of GPUs, at least two, and that
// the same hardware could host.
type group struct {
	gpus    int
	need    float64 // How many are expected to be in service at full load.
	members []member
}

// member is one request of a group.
type member struct {
	kinds        *capacity.KindSet
	vcpu, memory int64
	weight       int64 // Its part of the group; one for all members.
}

// on returns how many of g fit on s while whole devices, vCPU and memory are
// free: the mean over its members.
func (g *group) on(s *slot, whole int, vcpu, memory int64) int64 {
	if whole < g.gpus {
		return 0
	}
	sum := int64(0)
	for i := range g.members {
		m := &g.members[i]
		n := int64(s.accepted(m.kinds, whole) / g.gpus)
		for n > 0 && (vcpu < n*m.vcpu || memory < n*m.memory) {
			n--
		}
		sum += n * m.weight
	}
	return sum
}

// accepted returns how many of the whole free devices are of one of the kinds.
func (s *slot) accepted(k *capacity.KindSet, whole int) int {
	if s.Uniform != capacity.Mixed {
		if s.Accepted(k) {
			return whole
		}
		return 0
	}
	n := 0
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Free == compute.WholeGPU && d.Usable() && k.Has[d.Kind] && k.Enough(d.VRAM) {
			n++
		}
	}
	return min(n, whole)
}

// opening is how many of a group fit, and the price of taking one.
type opening struct {
	count int64 // Number that fit, over all nodes, in units of one.
	price int64 // Price of one opening.
}

// reprice sets the price of an opening of g. It is zero while openings are
// plentiful. It is all of the GPUs of g once there are no more openings than
// the standard deviation of the number in service. As for every count of
// independent arrivals, that is the root of its mean. So the price is
// proportional to mean / count², in steps of two. reprice reports whether the
// price has changed.
func (o *opening) reprice(g *group) bool {
	count := max(float64(o.count)/one, 0.25)
	mantissa, level := math.Frexp(float64(count*count) / g.need)
	if mantissa < math.Sqrt2/2 {
		level-- // Frexp rounds up.
	}
	level = max(level, 0)
	price := int64(0)
	if level < maxLevel {
		price = int64(g.gpus) * compute.WholeGPU << (places - level)
	}
	changed := price != o.price
	o.price = price
	return changed
}
