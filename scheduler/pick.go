package scheduler

import (
	"math"
	"slices"

	"berth/compute"
)

// pick appends to into the devices of s for one of q, which must fit.
func (s *slot) pick(v *value, q *shape, into []int) []int {
	switch {
	case q.gpus == 0:
		return into
	case q.gpus == 1 && q.milli < compute.WholeGPU:
		device, _ := s.sharing(v, q)
		return append(into, device)
	}
	kind := s.uniform
	if kind == mixed {
		kind, _ = s.kindFor(q, func(d *device) bool { return d.free >= q.milli && d.usable() })
	}
	return s.together(q, kind, into)
}

// sharing returns the device that a share is best taken from, and what the
// residues of s then lose in value: the device whose residue loses least, the
// fullest of equals, the first of those. It is -1 when none has the share
// free.
func (s *slot) sharing(v *value, q *shape) (device int, loss int64) {
	device, loss = -1, math.MaxInt64
	for i := range s.devices {
		d := &s.devices[i]
		if d.free < q.milli || s.uniform == mixed && (!d.is(q) || !d.usable()) {
			continue
		}
		l := v.residues[d.free-q.milli] - v.residues[d.free]
		if d.size != compute.WholeGPU {
			l = l * int64(d.size) / compute.WholeGPU
		}
		if l < loss || l == loss && d.free < s.devices[device].free {
			device, loss = i, l
		}
	}
	return device, loss
}

// together appends to into as many devices of a kind as q asks for, all with
// the share free: on the island with the fewest that are enough. Where no
// island has enough, the islands with the most come first. On an island, the
// fullest device first, then the lowest index.
func (s *slot) together(q *shape, kind int, into []int) []int {
	for len(into) < q.gpus {
		island, found := s.island(q, kind, q.gpus-len(into), into)
		if found == 0 {
			break
		}
		for found > 0 && len(into) < q.gpus {
			best := -1
			for i := range s.devices {
				d := &s.devices[i]
				if d.island == island && s.offers(d, q, kind) && !slices.Contains(into, i) &&
					(best < 0 || d.free < s.devices[best].free) {
					best = i
				}
			}
			into = append(into, best)
			found--
		}
	}
	return into
}

// offers reports whether d is of the kind and has the share free.
func (s *slot) offers(d *device, q *shape, kind int) bool {
	return d.kind == kind && d.free >= q.milli && d.usable()
}

// island returns the island that n devices for q are taken from next, and how
// many it has beside those taken.
func (s *slot) island(q *shape, kind, n int, taken []int) (island, devices int) {
	for i := range s.devices {
		first := &s.devices[i]
		if !s.offers(first, q, kind) || slices.Contains(taken, i) {
			continue
		}
		count := 0
		for j := range s.devices {
			if d := &s.devices[j]; d.island == first.island && s.offers(d, q, kind) && !slices.Contains(taken, j) {
				count++
			}
		}
		enough, better := count >= n, count > devices
		if enough {
			better = devices < n || count < devices
		}
		if better {
			island, devices = first.island, count
		}
	}
	return island, devices
}

// splits returns over how many islands beside the first q is spread on s.
func (s *slot) splits(q *shape, kind int) int {
	if !s.islands || q.gpus < 2 {
		return 0
	}
	var buffer [16]int
	seen := 0
	into := s.together(q, kind, buffer[:0])
	for n, i := range into {
		again := slices.ContainsFunc(into[:n], func(j int) bool {
			return s.devices[j].island == s.devices[i].island
		})
		if !again {
			seen++
		}
	}
	return seen - 1
}
