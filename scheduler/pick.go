package scheduler

import (
	"math"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// pick appends to into the devices of s for one q, which must fit.
func (s *slot) pick(v *value, q *capacity.Shape, into []int) []int {
	switch {
	case q.GPUs == 0:
		return into
	case q.GPUs == 1 && q.Milli < compute.WholeGPU:
		device, _ := s.shareDevice(v, q)
		return append(into, device)
	}
	kind := s.Uniform
	if kind == capacity.Mixed {
		kind, _ = s.KindFor(q, func(d *capacity.Device) bool { return d.Free >= q.Milli && d.Usable() })
	}
	return s.wholeDevices(q, kind, into)
}

// shareDevice returns the best device to take a share from, and the value that the
// residues of s then lose. It prefers the kind that q prefers, then the device whose
// residue loses least, then the fullest, then the first. It returns -1 when no device
// has the share free.
func (s *slot) shareDevice(v *value, q *capacity.Shape) (device int, loss int64) {
	device, loss = -1, math.MaxInt64
	rank := math.MaxInt
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Free < q.Milli || s.Uniform == capacity.Mixed && (!d.Is(q) || !d.Usable()) {
			continue
		}
		l := v.residues[d.Free-q.Milli] - v.residues[d.Free]
		if d.Size != compute.WholeGPU {
			l = l * int64(d.Size) / compute.WholeGPU
		}
		its := q.Kinds.Rank(d.Kind)
		if its < rank || its == rank && (l < loss || l == loss && d.Free < s.Devices[device].Free) {
			device, loss, rank = i, l, its
		}
	}
	return device, loss
}

// wholeDevices appends to into as many devices of a kind as q asks for, all
// with the share free: on the island with the fewest that are enough. If no
// island has enough, it starts with the islands that have the most. On an
// island it takes the fullest device first, then the lowest index.
func (s *slot) wholeDevices(q *capacity.Shape, kind int, into []int) []int {
	for len(into) < q.GPUs {
		island, found := s.island(q, kind, q.GPUs-len(into), into)
		if found == 0 {
			break
		}
		for found > 0 && len(into) < q.GPUs {
			best := -1
			for i := range s.Devices {
				d := &s.Devices[i]
				if d.Island == island && s.offers(d, q, kind) && !slices.Contains(into, i) &&
					(best < 0 || d.Free < s.Devices[best].Free) {
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
func (s *slot) offers(d *capacity.Device, q *capacity.Shape, kind int) bool {
	return d.Kind == kind && q.Kinds.Enough(d.VRAM) && d.Free >= q.Milli && d.Usable()
}

// island returns the next island to take n devices for q from, and how many it
// has beside those taken.
func (s *slot) island(q *capacity.Shape, kind, n int, taken []int) (island, devices int) {
	for i := range s.Devices {
		first := &s.Devices[i]
		if !s.offers(first, q, kind) || slices.Contains(taken, i) {
			continue
		}
		count := 0
		for j := range s.Devices {
			if d := &s.Devices[j]; d.Island == first.Island && s.offers(d, q, kind) && !slices.Contains(taken, j) {
				count++
			}
		}
		enough, better := count >= n, count > devices
		if enough {
			better = devices < n || count < devices
		}
		if better {
			island, devices = first.Island, count
		}
	}
	return island, devices
}

// splits returns over how many islands beside the first q is spread on s.
func (s *slot) splits(q *capacity.Shape, kind int) int {
	if !s.Islands || q.GPUs < 2 {
		return 0
	}
	var buffer [16]int
	seen := 0
	into := s.wholeDevices(q, kind, buffer[:0])
	for n, i := range into {
		again := slices.ContainsFunc(into[:n], func(j int) bool {
			return s.Devices[j].Island == s.Devices[i].Island
		})
		if !again {
			seen++
		}
	}
	return seen - 1
}
