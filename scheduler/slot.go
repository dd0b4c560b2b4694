package scheduler

import (
	"slices"

	"berth/compute"
)

// device is one GPU of a slot.
type device struct {
	gpuType int
	mig     string // Name of the slice that the device is, "" for a whole GPU.
	free    int    // Thousandths; below zero when claimed beyond what is free.
	health  compute.Health
	closed  bool // In MIG mode: only its slices take work.
}

// is reports whether d is of the kind that s asks for, in whatever health.
func (d *device) is(s *shape) bool {
	return d.gpuType == s.gpuType && d.mig == s.mig && !d.closed && d.health != compute.HealthMissing
}

// slot is a node as a place to put work: what is free there now, counting what
// this pass has given away or promised.
type slot struct {
	node    *compute.Node
	devices []device // In the order of node.GPUs.
	vcpu    int64    // Free thousandths.
	memory  int64    // Free MiB.
	gpuFree int64    // Free thousandths over all healthy devices.
	healthy int64    // Healthy devices.
	open    bool     // Takes new work.
	types   uint64   // A bit for each GPU type of the devices, modulo 64.
}

// load sets s to what the node's record says.
func (s *slot) load(n *compute.Node, t types) {
	s.node, s.open = n, n.Schedulable()
	s.vcpu, s.memory = n.VCPUMilli-n.UsedVCPUMilli, n.MemoryMiB-n.UsedMemoryMiB
	s.devices, s.gpuFree, s.healthy = s.devices[:0], 0, 0
	s.types = 0
	for i := range n.GPUs {
		g := &n.GPUs[i]
		d := device{gpuType: t.id(g.Type), health: g.Health, free: compute.WholeGPU - g.UsedMilli}
		switch g.MIG {
		case "enabled":
			d.closed = true
		case "", "disabled":
		default:
			d.mig = g.MIG
		}
		if d.health == compute.HealthOK {
			s.healthy++
			s.gpuFree += int64(d.free)
		}
		s.devices = append(s.devices, d)
		s.types |= typeBit(d.gpuType)
	}
}

// typeBit returns the bit of a GPU type in the set of a slot's types.
func typeBit(gpuType int) uint64 { return 1 << (gpuType % 64) }

// lacks reports whether no device of s is of the type that q asks for; a quick
// look, which may miss that.
func (s *slot) lacks(q *shape) bool {
	return q.gpuType != noType && s.types&typeBit(q.gpuType) == 0
}

// fits reports whether what is free holds one of q.
func (s *slot) fits(q *shape) bool {
	return s.open && s.vcpu >= q.vcpu && s.memory >= q.memory && s.freeDevices(q) >= q.gpus
}

// freeDevices returns how many devices have the share free that q asks for,
// at most as many as it asks for.
func (s *slot) freeDevices(q *shape) int {
	n := 0
	for i := range s.devices {
		if n == q.gpus {
			break
		}
		if d := &s.devices[i]; d.free >= q.milli && d.health == compute.HealthOK && d.is(q) {
			n++
		}
	}
	return n
}

// pick appends to into the devices for one of q, which must fit: those with
// the least left that is enough, the lowest index first.
func (s *slot) pick(q *shape, into []int) []int {
	for len(into) < q.gpus {
		best := -1
		for i := range s.devices {
			d := &s.devices[i]
			if d.free < q.milli || d.health != compute.HealthOK || !d.is(q) || slices.Contains(into, i) {
				continue
			}
			if best < 0 || d.free < s.devices[best].free {
				best = i
			}
		}
		into = append(into, best)
	}
	return into
}

// take marks one of q as placed on the given devices.
func (s *slot) take(q *shape, devices []int) {
	s.vcpu -= q.vcpu
	s.memory -= q.memory
	for _, i := range devices {
		s.devices[i].free -= q.milli
		s.gpuFree -= int64(q.milli)
	}
}

// shares returns what an assignment of q to the devices holds.
func (s *slot) shares(q *shape, devices []int) []compute.GPUShare {
	if len(devices) == 0 {
		return nil
	}
	out := make([]compute.GPUShare, len(devices))
	for i, d := range devices {
		out[i] = compute.GPUShare{GPU: s.node.GPUs[d].ID, Milli: q.milli}
	}
	return out
}

// wholeFree returns the free thousandths of s and those of them that could be
// given as whole GPUs; none while it takes no work.
func (s *slot) wholeFree() (free, whole int64) {
	if !s.open {
		return 0, 0
	}
	for i := range s.devices {
		d := &s.devices[i]
		if d.health != compute.HealthOK || d.free <= 0 {
			continue
		}
		free += int64(d.free)
		if d.free == compute.WholeGPU && !d.closed {
			whole += compute.WholeGPU
		}
	}
	fed := whole - s.stranded(whole, s.vcpu, s.memory)
	return free, fed - fed%compute.WholeGPU
}
