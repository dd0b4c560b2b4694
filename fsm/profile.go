package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/format"
)

// Resources of a CPU-only profile per vCPU.
const (
	cpuMilli  = 1000
	cpuMemory = 2 << 10 // MiB.
)

// maxListedCPUs is the largest CPU-only profile that Profiles lists. Larger
// ones are valid too.
const maxListedCPUs = 64

// shape is the nodes' supply of one kind of device: a GPU type, or a MIG slice
// of one.
type shape struct {
	most   int   // Devices of the kind on one node.
	vcpu   int64 // Per whole GPU, of the smallest node.
	memory int64
}

// offer is the supply of all known nodes, including down and drained ones. It
// is derived from their inventories and replaced when one changes.
type offer struct {
	types map[string]shape // By kind of device. Immutable.

	// memory is the smallest memory of a whole GPU by type, in MiB, which
	// prices follow. Immutable.
	memory map[string]int64

	nodes int   // Nodes that have reported an inventory.
	cpus  int64 // vCPUs of the largest CPU-only profile that one node could host.
}

// newOffer returns the offer of no nodes.
func newOffer() offer { return offer{types: make(map[string]shape), memory: make(map[string]int64)} }

// reshape recomputes the offer from the nodes' inventories.
func (s *membership) reshape() {
	o := newOffer()
	for n := range s.view.nodes.Values() {
		o.add(n)
	}
	s.view.offered = o
}

// widen adds a node that had reported nothing before. It does not scan the
// others, which may be many when a cluster starts.
func (s *membership) widen(n *compute.Node) {
	o := s.view.offered
	o.types, o.memory = maps.Clone(o.types), maps.Clone(o.memory)
	o.add(n)
	s.view.offered = o
}

// add adds n. GPUs that are gone but still held do not count, and a GPU in MIG
// mode counts by its slices. The order of nodes does not matter.
func (o *offer) add(n *compute.Node) {
	if n.VCPUMilli > 0 {
		o.nodes++
		o.cpus = max(o.cpus, min(n.VCPUMilli/cpuMilli, n.MemoryMiB/cpuMemory))
	}
	whole := int64(0)
	for i := range n.GPUs {
		if n.GPUs[i].Parent == "" {
			whole++
		}
	}
	vcpu, memory := n.VCPUMilli/max(whole, 1), n.MemoryMiB/max(whole, 1)
	here := make(map[string]int)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.Health == compute.HealthMissing {
			continue
		}
		if least, known := o.memory[g.Type]; g.Parent == "" && (!known || g.VRAMMiB < least) {
			o.memory[g.Type] = g.VRAMMiB
		}
		if g.Sliced() {
			continue
		}
		kind := compute.Profile{GPUType: g.Type, MIG: g.Slice()}.Kind()
		here[kind]++
		s, known := o.types[kind]
		if !known {
			s = shape{vcpu: vcpu, memory: memory}
		}
		s.most = max(s.most, here[kind])
		s.vcpu, s.memory = min(s.vcpu, vcpu), min(s.memory, memory)
		o.types[kind] = s
	}
}

// differ returns an error when two offers differ.
func (o offer) differ(want offer) error {
	if o.nodes != want.nodes || o.cpus != want.cpus || !maps.Equal(o.types, want.types) ||
		!maps.Equal(o.memory, want.memory) {
		return fmt.Errorf("nodes offer %+v, their inventories say %+v", o, want)
	}
	return nil
}

// GPUTypes returns the kinds of GPU of the known nodes, sorted: types such as
// "a100", and MIG slices such as "a100.mig_1g_5gb".
func (v *nodeTables) GPUTypes() []string {
	return slices.Sorted(maps.Keys(v.offered.types)) // Sorted, so any order will do.
}

// Profiles returns the currently valid hardware profiles, canonical and sorted.
// Shares of a GPU and other numbers of vCPUs are valid too.
func (v *View) Profiles() []string {
	var names []string
	add := func(p compute.Profile) {
		if _, _, err := (resolver{v}).size(p); err == nil {
			names = append(names, p.String())
		}
	}
	for n := 1; n <= maxListedCPUs; n *= 2 {
		add(compute.Profile{Count: n})
	}
	for _, name := range v.GPUTypes() {
		p, err := compute.ParseProfile(name)
		if err != nil {
			continue // Inventories are checked, so this cannot happen.
		}
		for p.Count = 1; p.Count <= maxCount(p); p.Count *= 2 {
			add(p)
		}
	}
	slices.Sort(names)
	return names
}

// resolver resolves profiles in a view.
type resolver struct{ view *View }

// Resolve returns the request of a profile and its price per second. The code
// of a name that is malformed, of an unknown type or larger than any known node
// is CodeInvalid, and the message lists the currently valid profiles.
func (v *View) Resolve(profile string) (compute.Profile, compute.Request, compute.Price, error) {
	p, err := compute.ParseProfile(profile)
	if err != nil {
		return compute.Profile{}, compute.Request{}, 0, resolver{v}.unknownProfile(err.Error(), "unknown_profile")
	}
	if p.GPUType == compute.AnyGPU && v.Format() >= format.Services {
		r, price, refusal := v.resolveAny(p)
		if refusal != nil {
			return compute.Profile{}, compute.Request{}, 0, refusal
		}
		return p, r, price, nil
	}
	r, price, fault := resolver{v}.size(p)
	if fault != nil {
		return compute.Profile{}, compute.Request{}, 0, resolver{v}.unknownProfile(fault.Message, fault.Detail)
	}
	return p, r, price, nil
}

// maxCount returns the largest number of devices in a profile of p's kind. MIG
// slices come one at a time, because a program sees only one of them.
func maxCount(p compute.Profile) int {
	if p.MIG != "" {
		return 1
	}
	return 8
}

func (v resolver) unknownProfile(why, detail string) *compute.Error {
	return compute.Errorf(compute.CodeInvalid, "%s; valid profiles: %s",
		why, strings.Join(v.view.Profiles(), ", ")).Named(detail)
}

// size returns the request and the price of p.
func (v resolver) size(p compute.Profile) (compute.Request, compute.Price, *compute.Error) {
	if !p.IsGPU() {
		return v.sizeCPU(p)
	}
	s, known := v.view.offered.types[p.Kind()]
	switch {
	case !known && p.MIG != "":
		return faulty("unknown_profile", "no node offers MIG slices %s of %q", compute.MIGProfile(p.MIG), p.GPUType)
	case !known && v.view.sliced(p.GPUType):
		return faulty("unknown_profile", "all GPUs of type %q are in MIG mode: ask for a slice", p.GPUType)
	case !known:
		return faulty("unknown_profile", "no node has GPUs of type %q%s", p.GPUType, v.view.suggestion(p.GPUType))
	case s.most < p.Count:
		return faulty("never_fits", "%s fits on no node: the most %s GPUs on one node are %d; %s would fit",
			p, p.GPUType, s.most, v.view.nearest(p, s.most))
	}
	each, _, priced := v.view.PriceOf(p.GPUType)
	if !priced {
		return faulty("unknown_profile", "GPU type %q has no price", p.GPUType)
	}
	parts, whole := partsOf(p)
	return compute.Request{
		GPUType: p.GPUType, GPUs: p.Count, MilliGPU: p.MilliGPU, MIG: p.MIG,
		VCPUMilli: s.vcpu * parts / whole,
		MemoryMiB: s.memory * parts / whole,
	}, proRata(each, parts, whole), nil
}

// maxNearest is how many other types a refusal lists.
const maxNearest = 3

// nearest names alternatives to p that would fit: the largest profile of its
// type, and as many GPUs of other types.
func (v *nodeTables) nearest(p compute.Profile, most int) string {
	count := 1
	for 2*count <= most {
		count *= 2
	}
	names := []string{compute.Profile{GPUType: p.GPUType, Count: count, MilliGPU: compute.WholeGPU}.String()}
	for _, kind := range v.GPUTypes() {
		other, err := compute.ParseProfile(kind)
		if err != nil || len(names) > maxNearest || v.offered.types[kind].most < p.Count {
			continue
		}
		if other.MIG == "" {
			other.Count = p.Count
		} else if p.Count > 1 {
			continue // Slices come one at a time.
		}
		names = append(names, other.String())
	}
	return strings.Join(names, ", ")
}

// suggestion proposes a type that differs from gpuType in one letter; "" when there
// is none.
func (v *nodeTables) suggestion(gpuType string) string {
	for _, kind := range v.GPUTypes() {
		if nearlySame(kind, gpuType) {
			return fmt.Sprintf("; was %q meant?", kind)
		}
	}
	return ""
}

// nearlySame reports whether inserting, deleting or replacing one letter turns
// a into b.
func nearlySame(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	return len(b)-len(a) <= 1 && (a[same:] == b[same+len(b)-len(a):] ||
		len(a) == len(b) && same < len(a) && a[same+1:] == b[same+1:])
}

// partsOf returns the size of p in parts of one GPU, and the number of parts of
// a whole GPU: thousandths, or for a MIG slice the parts of the compute.
func partsOf(p compute.Profile) (parts, whole int64) {
	if slice, err := compute.ParseMIG(p.MIG); err == nil {
		return int64(slice.Compute), int64(compute.MIGParts(p.GPUType))
	}
	return int64(p.Count * p.MilliGPU), compute.WholeGPU
}

// sliced reports whether a node offers MIG slices of the type.
func (v *nodeTables) sliced(gpuType string) bool {
	prefix := compute.Profile{GPUType: gpuType}.Kind() + ".mig_"
	return slices.ContainsFunc(v.GPUTypes(), func(kind string) bool { return strings.HasPrefix(kind, prefix) })
}

// sizeCPU sizes a CPU-only profile. Before any node has reported an inventory,
// any number of vCPUs is valid and waits.
func (v resolver) sizeCPU(p compute.Profile) (compute.Request, compute.Price, *compute.Error) {
	n := int64(p.Count)
	r := compute.Request{VCPUMilli: n * cpuMilli, MemoryMiB: n * cpuMemory}
	if most := v.view.offered.cpus; v.view.offered.nodes > 0 && n > max(most, 1) {
		return faulty("never_fits", "%s fits on no node: %s is the largest that would",
			p, compute.Profile{Count: int(max(most, 1))})
	}
	each, _, priced := v.view.PriceOf(compute.CPUPrice)
	if !priced {
		return faulty("unknown_profile", "CPU-only work has no price")
	}
	return r, each * compute.Price(n), nil
}

// proRata returns the price of some of the whole parts of a GPU, rounded up so
// that no share is free.
func proRata(each compute.Price, parts, whole int64) compute.Price {
	return (each*compute.Price(parts) + compute.Price(whole) - 1) / compute.Price(whole)
}

func faulty(detail, format string, args ...any) (compute.Request, compute.Price, *compute.Error) {
	return compute.Request{}, 0, &compute.Error{
		Code: compute.CodeInvalid, Message: fmt.Sprintf(format, args...), Detail: detail,
	}
}
