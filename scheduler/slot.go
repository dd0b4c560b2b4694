package scheduler

import (
	"berth/compute"
)

// device is one GPU of a slot, or one MIG slice.
type device struct {
	kind   int
	free   int // Thousandths of the device; below zero when claimed beyond what is free.
	size   int // What the device is worth in thousandths of a GPU.
	island int // Devices with the same are close to each other.
	health compute.Health
	closed bool // In MIG mode: only its slices take work.
}

// is reports whether d is of the kind that s asks for, in whatever health.
func (d *device) is(s *shape) bool {
	return s.kinds.has[d.kind] && !d.closed && d.health != compute.HealthMissing
}

// usable reports whether d takes work.
func (d *device) usable() bool { return d.health == compute.HealthOK && !d.closed }

// worth returns what milli thousandths of d are in thousandths of a GPU.
func (d *device) worth(milli int) int64 { return int64(milli) * int64(d.size) / compute.WholeGPU }

// slot is a node as a place to put work: what is free there now, counting what
// this pass has given away or promised.
type slot struct {
	node    *compute.Node
	devices []device // In the order of node.GPUs.
	vcpu    int64    // Free thousandths.
	memory  int64    // Free MiB.
	open    bool     // Takes new work.
	stale   bool     // It is not what the record says.
	idle    bool     // Nothing of it is given away.
	islands bool     // Its devices are on more than one island.

	// uniform is the kind of all devices when they are of one kind and all
	// take work, mixed otherwise: then each device has to be looked at.
	uniform  int
	hardware int // Number of what it has, when nothing is given away.

	// What is derived from the devices by count.
	gpuFree int64 // Free thousandths of a GPU over all usable devices.
	whole   int   // Usable devices of which all is free.
	most    int   // The largest free share of a usable device.
	rest    int64 // What value.rest returns of it.
	usable  int64 // Of gpuFree, what could be given as whole GPUs.
}

// mixed stands for devices of several kinds, or such as take no work.
const mixed = -1

// load sets s to what the node's record says.
func (s *slot) load(n *compute.Node, t *types) {
	s.node, s.open, s.stale = n, n.Schedulable(), false
	s.vcpu, s.memory = n.VCPUMilli-n.UsedVCPUMilli, n.MemoryMiB-n.UsedMemoryMiB
	s.devices, s.islands = s.devices[:0], false
	s.idle = n.UsedVCPUMilli == 0 && n.UsedMemoryMiB == 0
	same := len(n.GPUs) > 0
	for i := range n.GPUs {
		g := &n.GPUs[i]
		d := device{
			kind: t.of(g), health: g.Health, free: compute.WholeGPU - g.UsedMilli,
			island: g.Island, closed: g.Sliced(),
		}
		d.size = t.sizes[d.kind]
		s.devices = append(s.devices, d)
		same = same && d.usable() && d.kind == s.devices[0].kind
		s.islands = s.islands || d.island != s.devices[0].island
		s.idle = s.idle && g.UsedMilli == 0
	}
	s.uniform = mixed
	if same {
		s.uniform = s.devices[0].kind
	}
	s.count()
}

// count derives what follows from the devices.
func (s *slot) count() {
	s.gpuFree, s.whole, s.most = 0, 0, 0
	for i := range s.devices {
		d := &s.devices[i]
		if d.free <= 0 || !d.usable() {
			continue
		}
		s.gpuFree += d.worth(d.free)
		s.most = max(s.most, d.free)
		if d.free == compute.WholeGPU {
			s.whole++
		}
	}
}

// fits reports whether what is free holds one of q.
func (s *slot) fits(q *shape) bool {
	if !s.open || s.vcpu < q.vcpu || s.memory < q.memory {
		return false
	}
	switch {
	case q.gpus == 0:
		return true
	case s.most < q.milli:
		return false
	case s.uniform != mixed && !q.kinds.has[s.uniform]:
		return false
	case s.uniform != mixed && q.gpus == 1:
		return true
	case s.uniform != mixed && q.milli == compute.WholeGPU:
		return s.whole >= q.gpus
	}
	return s.freeDevices(q) >= q.gpus
}

// freeDevices returns how many devices of one kind have the share free that q
// asks for: of the first kind that has enough of them, or else the most.
func (s *slot) freeDevices(q *shape) int {
	if s.uniform != mixed && q.milli == compute.WholeGPU {
		if q.kinds.has[s.uniform] {
			return s.whole
		}
		return 0
	}
	_, n := s.kindFor(q, func(d *device) bool { return d.free >= q.milli && d.usable() })
	return n
}

// kindFor returns the kind that q gets on s and how many devices of it will
// do: the first kind with enough of them, or else the one with the most.
func (s *slot) kindFor(q *shape, do func(*device) bool) (kind, devices int) {
	kind = mixed
	for i := range s.devices {
		d := &s.devices[i]
		if d.kind == kind || !d.is(q) {
			continue
		}
		n := 0
		for j := i; j < len(s.devices); j++ {
			if e := &s.devices[j]; e.kind == d.kind && do(e) {
				n++
			}
		}
		if kind == mixed || n > devices {
			kind, devices = d.kind, n
		}
		if devices >= q.gpus {
			break
		}
	}
	return kind, devices
}

// take marks one of q as placed on the given devices.
func (s *slot) take(q *shape, devices []int) { s.move(q, devices, 1) }

// put gives back what take took.
func (s *slot) put(q *shape, devices []int) { s.move(q, devices, -1) }

func (s *slot) move(q *shape, devices []int, sign int) {
	s.vcpu -= int64(sign) * q.vcpu
	s.memory -= int64(sign) * q.memory
	for _, i := range devices {
		s.devices[i].free -= sign * q.milli
	}
	s.count()
	s.idle = s.vcpu == s.node.VCPUMilli && s.memory == s.node.MemoryMiB
	for i := range s.devices {
		s.idle = s.idle && s.devices[i].free == compute.WholeGPU
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
