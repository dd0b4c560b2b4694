package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// gapUnit makes a missing GPU weigh more than any missing vCPU or memory.
const gapUnit = 1 << 32

// fits reports whether r holds one of q.
func (r *room) fits(q *shape) bool {
	return r.vcpu >= q.vcpu && r.memory >= q.memory && (q.gpus == 0 || r.enough(q, q.milli) != closedKind)
}

// enough returns the first kind of which q finds enough devices with so much
// free, closedKind for none.
func (r *room) enough(q *shape, free int) int {
	for first, kind := range r.kinds {
		if !r.is(first, q) || first > 0 && r.kinds[first-1] == kind {
			continue
		}
		n := 0
		for i, k := range r.kinds {
			if k == kind && r.free[i] >= free {
				n++
			}
		}
		if n >= q.gpus {
			return kind
		}
	}
	return closedKind
}

// is reports whether a device is of a kind that q accepts.
func (r *room) is(device int, q *shape) bool {
	k := r.kinds[device]
	return k != closedKind && q.kinds.has[k]
}

// devices returns the devices with so much free of the first kind with enough
// of them for q, none when there is no such kind: all devices of one execution
// are of one kind.
func (r *room) devices(q *shape, free int) []int {
	kind := r.enough(q, free)
	if kind == closedKind {
		return nil
	}
	var out []int
	for i, k := range r.kinds {
		if k == kind && r.free[i] >= free {
			out = append(out, i)
		}
	}
	return out
}

// pick returns devices for one of q, which fits: those with the least left
// that is enough.
func (r *room) pick(q *shape) []int {
	if q.gpus == 0 {
		return nil
	}
	all := r.devices(q, q.milli)
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(r.free[a], r.free[b]) })
	return all[:q.gpus]
}

// give takes one of q (sign 1), or gives it back (-1).
func (r *room) give(q *shape, devices []int, sign int) {
	r.vcpu -= int64(sign) * q.vcpu
	r.memory -= int64(sign) * q.memory
	for _, i := range devices {
		r.free[i] -= sign * q.milli
	}
}

// clone returns a copy whose devices are its own.
func (r *room) clone() room {
	c := *r
	c.free = slices.Clone(r.free)
	return c
}

// without returns r as it is for others when one of q has a claim on it: what
// it needs is gone, also where it is not free yet.
func (r *room) without(q *shape) *room {
	c := r.clone()
	c.vcpu, c.memory = c.vcpu-q.vcpu, c.memory-q.memory
	for _, i := range r.nearest(q) {
		c.free[i] -= q.milli
	}
	return &c
}

// nearest returns the devices for q with the most free, none when no kind has
// enough of them.
func (r *room) nearest(q *shape) []int {
	if q.gpus == 0 {
		return nil
	}
	all := r.devices(q, math.MinInt)
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(r.free[b], r.free[a]) })
	return all[:min(len(all), q.gpus)]
}

// missing returns how far q is from fitting, the largest number when the
// node could not host it empty.
func (r *room) missing(q *shape) int64 {
	near := r.nearest(q)
	if len(near) < q.gpus || r.allVCPU < q.vcpu || r.allMemory < q.memory {
		return math.MaxInt64
	}
	gap := max(q.vcpu-r.vcpu, 0) + max(q.memory-r.memory, 0)
	for _, i := range near {
		gap += gapUnit * int64(max(q.milli-r.free[i], 0))
	}
	return gap
}
