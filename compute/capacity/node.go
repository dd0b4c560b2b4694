package capacity

import (
	"cmp"
	"slices"

	"berth/compute"
)

// Device is one GPU of a node, or one MIG slice.
type Device struct {
	Kind   int
	Free   int   // Thousandths of the device; below zero when more is claimed than is free.
	Size   int   // Worth of the device in thousandths of a GPU.
	VRAM   int64 // MiB.
	Island int   // Devices on the same island share a fast link.
	Health compute.Health
	Closed bool // In MIG mode: only its slices take work.
}

// Is reports whether d is of a kind that q accepts, healthy or failed.
func (d *Device) Is(q *Shape) bool {
	return q.Kinds.Has[d.Kind] && q.Kinds.Enough(d.VRAM) && !d.Closed && d.Health != compute.HealthMissing
}

// Usable reports whether d takes work.
func (d *Device) Usable() bool { return d.Health == compute.HealthOK && !d.Closed }

// Worth converts thousandths of d to thousandths of a GPU.
func (d *Device) Worth(milli int) int64 { return int64(milli) * int64(d.Size) / compute.WholeGPU }

// Node is the free capacity of one node.
type Node struct {
	Record  *compute.Node
	Devices []Device // In the order of Record.GPUs.
	VCPU    int64    // Free thousandths.
	Memory  int64    // Free MiB.
	Open    bool     // The node takes new work.
	Idle    bool     // Nothing is given away.
	Islands bool     // The devices are on more than one island.

	// Uniform is the kind of all devices when they are of one kind, have the same
	// memory and are all usable, and Mixed otherwise. It saves a scan of the devices.
	Uniform int

	// Count derives these from the devices.
	GPUFree int64 // Free thousandths of a GPU over all usable devices.
	Whole   int   // Usable devices that are entirely free.
	Most    int   // The largest free share of a usable device.
}

// Mixed means devices of several kinds, or some that are not usable.
const Mixed = -1

// Load sets s to the node's record.
func (s *Node) Load(n *compute.Node, t *Kinds) {
	s.Record, s.Open = n, n.Schedulable()
	s.VCPU, s.Memory = n.VCPUMilli-n.UsedVCPUMilli, n.MemoryMiB-n.UsedMemoryMiB
	s.Devices, s.Islands = s.Devices[:0], false
	s.Idle = n.UsedVCPUMilli == 0 && n.UsedMemoryMiB == 0
	same := len(n.GPUs) > 0
	for i := range n.GPUs {
		g := &n.GPUs[i]
		d := Device{
			Kind: t.Number(g), Health: g.Health, Free: compute.WholeGPU - g.UsedMilli,
			VRAM: g.VRAMMiB, Island: g.Island, Closed: g.Sliced(),
		}
		d.Size = t.Sizes[d.Kind]
		s.Devices = append(s.Devices, d)
		same = same && d.Usable() && d.Kind == s.Devices[0].Kind && d.VRAM == s.Devices[0].VRAM
		s.Islands = s.Islands || d.Island != s.Devices[0].Island
		s.Idle = s.Idle && g.UsedMilli == 0
	}
	s.Uniform = Mixed
	if same {
		s.Uniform = s.Devices[0].Kind
	}
	s.Count()
}

// Clear frees everything, as if nothing ran on the node.
func (s *Node) Clear() {
	s.VCPU, s.Memory, s.Idle = s.Record.VCPUMilli, s.Record.MemoryMiB, true
	for i := range s.Devices {
		s.Devices[i].Free = compute.WholeGPU
	}
	s.Count()
}

// CopyFrom makes s a copy of from with devices of its own. It reuses the memory
// of the devices that s had.
func (s *Node) CopyFrom(from *Node) {
	devices := append(s.Devices[:0], from.Devices...)
	*s = *from
	s.Devices = devices
}

// Count derives the sums from the devices.
func (s *Node) Count() {
	s.GPUFree, s.Whole, s.Most = 0, 0, 0
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Free <= 0 || !d.Usable() {
			continue
		}
		s.GPUFree += d.Worth(d.Free)
		s.Most = max(s.Most, d.Free)
		if d.Free == compute.WholeGPU {
			s.Whole++
		}
	}
}

// Fits reports whether the free capacity holds one q.
func (s *Node) Fits(q *Shape) bool {
	if !s.Open || s.VCPU < q.VCPU || s.Memory < q.Memory || !q.Offered(s.Record) {
		return false
	}
	switch {
	case q.GPUs == 0:
		return true
	case s.Most < q.Milli:
		return false
	case s.Uniform != Mixed && !s.Accepted(q.Kinds):
		return false
	case s.Uniform != Mixed && q.GPUs == 1:
		return true
	case s.Uniform != Mixed && q.Milli == compute.WholeGPU:
		return s.Whole >= q.GPUs
	}
	return s.FreeDevices(q) >= q.GPUs
}

// Holds returns how many of q the free capacity holds, whether or not the node
// takes new work.
func (s *Node) Holds(q *Shape) int {
	count := int64(1 << 30)
	if q.VCPU > 0 {
		count = min(count, s.VCPU/q.VCPU)
	}
	if q.Memory > 0 {
		count = min(count, s.Memory/q.Memory)
	}
	if q.GPUs > 0 {
		gpus := 0
		for i := range s.Devices {
			if d := &s.Devices[i]; d.Is(q) && d.Usable() {
				gpus += d.Free / q.Milli
			}
		}
		count = min(count, int64(gpus/q.GPUs))
	}
	return int(max(count, 0))
}

// Accepted reports whether the set accepts the devices, which are uniform.
func (s *Node) Accepted(k *KindSet) bool { return k.Has[s.Uniform] && k.Enough(s.Devices[0].VRAM) }

// FreeDevices returns how many devices of one kind have the share of q free: of
// the first kind with enough of them, or else of the kind with the most.
func (s *Node) FreeDevices(q *Shape) int {
	if s.Uniform != Mixed && q.Milli == compute.WholeGPU {
		if s.Accepted(q.Kinds) {
			return s.Whole
		}
		return 0
	}
	_, n := s.KindFor(q, func(d *Device) bool { return d.Free >= q.Milli && d.Usable() })
	return n
}

// KindFor returns the kind that q gets on s, and how many devices of it match. Among the
// kinds with enough matching devices it takes the one that q prefers, or else the first.
// If no kind has enough, it takes the one with the most.
func (s *Node) KindFor(q *Shape, match func(*Device) bool) (kind, devices int) {
	kind = Mixed
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Kind == kind || !d.Is(q) {
			continue
		}
		n := 0
		for j := i; j < len(s.Devices); j++ {
			if e := &s.Devices[j]; e.Kind == d.Kind && q.Kinds.Enough(e.VRAM) && match(e) {
				n++
			}
		}
		better := n > devices
		if n >= q.GPUs && devices >= q.GPUs {
			better = q.Kinds.Rank(d.Kind) < q.Kinds.Rank(kind)
		}
		if kind == Mixed || better {
			kind, devices = d.Kind, n
		}
		if devices >= q.GPUs && q.Kinds.Rank(kind) == 0 {
			break
		}
	}
	return kind, devices
}

// OfKind returns how many devices of one kind s has for q, healthy or failed,
// and how many healthy ones: each of the kind with the most.
func (s *Node) OfKind(q *Shape) (known, healthy int) {
	if q.GPUs == 0 {
		return 0, 0
	}
	if s.Uniform != Mixed {
		if !s.Accepted(q.Kinds) {
			return 0, 0
		}
		return len(s.Devices), len(s.Devices)
	}
	_, known = s.KindFor(q, func(d *Device) bool { return d.Is(q) })
	_, healthy = s.KindFor(q, (*Device).Usable)
	return known, healthy
}

// FirstFree returns the first devices that have the share of q free, of the
// kind that q gets. q must fit.
func (s *Node) FirstFree(q *Shape) []int {
	if q.GPUs == 0 {
		return nil
	}
	kind, _ := s.KindFor(q, func(d *Device) bool { return d.Free >= q.Milli && d.Usable() })
	out := make([]int, 0, q.GPUs)
	for i := range s.Devices {
		d := &s.Devices[i]
		if len(out) < q.GPUs && d.Kind == kind && q.Kinds.Enough(d.VRAM) && d.Free >= q.Milli && d.Usable() {
			out = append(out, i)
		}
	}
	return out
}

// Nearest appends to into the usable devices for q with the most free, the
// lowest index first when equal. It appends none when no kind has enough
// devices.
func (s *Node) Nearest(q *Shape, into []int) []int {
	if q.GPUs == 0 {
		return into
	}
	kind, n := s.KindFor(q, (*Device).Usable)
	if n < q.GPUs {
		return into
	}
	start := len(into)
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Kind == kind && q.Kinds.Enough(d.VRAM) && d.Usable() {
			into = append(into, i)
		}
	}
	slices.SortStableFunc(into[start:], func(a, b int) int {
		return cmp.Compare(s.Devices[b].Free, s.Devices[a].Free)
	})
	return into[:start+q.GPUs]
}

// Take marks the capacity of one q on the given devices as given away.
func (s *Node) Take(q *Shape, devices []int) { s.move(q, devices, 1) }

// Put undoes Take.
func (s *Node) Put(q *Shape, devices []int) { s.move(q, devices, -1) }

func (s *Node) move(q *Shape, devices []int, sign int) {
	s.VCPU -= int64(sign) * q.VCPU
	s.Memory -= int64(sign) * q.Memory
	for _, i := range devices {
		s.Devices[i].Free -= sign * q.Milli
	}
	s.Count()
	s.Idle = s.VCPU == s.Record.VCPUMilli && s.Memory == s.Record.MemoryMiB
	for i := range s.Devices {
		s.Idle = s.Idle && s.Devices[i].Free == compute.WholeGPU
	}
}

// Shares returns the GPU shares of an assignment of q to the devices.
func (s *Node) Shares(q *Shape, devices []int) []compute.GPUShare {
	if len(devices) == 0 {
		return nil
	}
	out := make([]compute.GPUShare, len(devices))
	for i, d := range devices {
		out[i] = compute.GPUShare{GPU: s.Record.GPUs[d].ID, Milli: q.Milli}
	}
	return out
}

// DevicesOf returns the positions in n.GPUs of the devices that shares name.
// Devices that n does not report are left out.
func DevicesOf(n *compute.Node, shares []compute.GPUShare) []int {
	var out []int
	for _, share := range shares {
		if i := slices.IndexFunc(n.GPUs, func(g compute.GPU) bool { return g.ID == share.GPU }); i >= 0 {
			out = append(out, i)
		}
	}
	return out
}
