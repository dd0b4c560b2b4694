package fsm

import (
	"slices"
	"strings"

	"berth/compute"
)

// maxMinVRAM bounds the GPU memory that can be asked for, in MiB.
const maxMinVRAM = 1 << 30

// MemoryOf returns the smallest memory of a device of a profile's kind, in MiB;
// 0 for an unknown type.
func (v *nodeTables) MemoryOf(p compute.Profile) int64 {
	if slice, err := compute.ParseMIG(p.MIG); err == nil {
		return int64(slice.MemoryGiB) << 10
	}
	return v.offered.memory[p.GPUType]
}

// needVRAM has r ask for GPUs of which each, or each share, has at least so much
// memory. It refuses a request that no node could host, and names one that would fit.
func (v *nodeTables) needVRAM(p compute.Profile, r *compute.Request, minMiB int64) *compute.Error {
	switch {
	case minMiB == 0:
		return nil
	case !p.IsGPU():
		return compute.Errorf(compute.CodeInvalid,
			"min_vram_gb is about GPUs, and %s has none: name a GPU type", p).Named("min_vram")
	}
	milli := int64(max(p.MilliGPU, 1))
	r.MinVRAMMiB = (minMiB*compute.WholeGPU + milli - 1) / milli
	if v.mostOf(r) >= r.GPUs {
		return nil
	}
	return compute.Errorf(compute.CodeInvalid, "%s with %d GiB each fits on no node: %s",
		p, minMiB>>10, v.enoughVRAM(r)).Named("never_fits")
}

// mostOf returns the largest number of devices for r on one node.
func (v *nodeTables) mostOf(r *compute.Request) int {
	most := 0
	for n := range v.Nodes() {
		here := 0
		for i := range n.GPUs {
			if g := &n.GPUs[i]; g.Health != compute.HealthMissing && g.Is(*r) {
				here++
			}
		}
		most = max(most, here)
	}
	return most
}

// enoughVRAM names the types that have as many GPUs with as much memory as r
// asks for.
func (v *nodeTables) enoughVRAM(r *compute.Request) string {
	var names []string
	for _, kind := range v.GPUTypes() {
		p, err := compute.ParseProfile(kind)
		if err != nil || p.MIG != "" {
			continue
		}
		other := *r
		other.GPUType, other.MIG = p.GPUType, ""
		if v.mostOf(&other) >= r.GPUs {
			p.Count, p.MilliGPU = r.GPUs, r.MilliGPU
			names = append(names, p.String())
		}
	}
	if len(names) == 0 {
		return "no GPU type has that much memory"
	}
	slices.Sort(names)
	return strings.Join(names, ", ") + " would fit"
}
