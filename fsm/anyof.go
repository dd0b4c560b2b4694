package fsm

import (
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/format"
)

// maxCapability bounds the compute capability that can be asked for, in tenths.
const maxCapability = 999

// CapabilityOf returns the lowest known compute capability of the devices of a type,
// in tenths; 0 if none is known.
func (v *nodeTables) CapabilityOf(gpuType string) int {
	least := 0
	for n := range v.Nodes() {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if g.Type == gpuType && g.Capability > 0 && (least == 0 || g.Capability < least) {
				least = g.Capability
			}
		}
	}
	return least
}

// needCapability refuses a profile whose GPUs have not the compute capability that
// is asked for, in tenths.
func (v *nodeTables) needCapability(p compute.Profile, least int) *compute.Error {
	if least == 0 {
		return nil // As in most submits, which need not look at every device.
	}
	has := compute.GPU{Capability: v.CapabilityOf(p.GPUType)}
	want := compute.GPU{Capability: least}
	switch {
	case p.IsGPU() && has.Capability >= least:
		return nil
	case !p.IsGPU():
		return compute.Errorf(compute.CodeInvalid, "min_compute_capability is about GPUs, and %s has none: "+
			"name a GPU type, or gpu.any", p).Named("min_compute_capability")
	case has.Capability == 0:
		return compute.Errorf(compute.CodeInvalid, "the compute capability of %s is not known", p.GPUType).Named("never_fits")
	}
	return compute.Errorf(compute.CodeInvalid, "%s has compute capability %s, not %s",
		p.GPUType, has.CapabilityName(), want.CapabilityName()).Named("never_fits")
}

// needs adds to r the needs of e for each GPU of profile p.
func (v *nodeTables) needs(e *compute.Execution, p compute.Profile, r *compute.Request) *compute.Error {
	if refusal := v.needCapability(p, e.MinCapability); refusal != nil {
		return refusal
	}
	return v.needVRAM(p, r, e.MinVRAMMiB)
}

// acceptsAny reports whether e asks for one of several GPU types: below format 8 none
// does.
func (v *View) acceptsAny(e *compute.Execution) bool {
	if v.Format() < format.Services {
		return false
	}
	p, err := compute.ParseProfile(e.Profile)
	return len(e.GPUTypes) > 0 || err == nil && p.GPUType == compute.AnyGPU
}

// prepareAny sizes and prices an execution that gets one of several GPU types. Each GPU
// comes with the vCPU and memory of the type that has least. While the execution waits,
// its price is that of the dearest type. Types that could never host it are left out.
func (v resolver) prepareAny(e *compute.Execution) *compute.Error {
	p, err := compute.ParseProfile(e.Profile)
	if err != nil {
		return asRefusal(err)
	}
	names, refusal := v.typesFor(e, p)
	if refusal != nil {
		return refusal
	}
	var left []string
	var denied *compute.Error
	e.GPUTypes = nil
	for _, name := range names {
		t, r, refusal := v.acceptType(e, p, name)
		if refusal != nil && refusal.Code == compute.CodeForbidden {
			denied, refusal.Message = refusal, "the organization may not use it"
		}
		if refusal != nil {
			left = append(left, name+": "+refusal.Message)
			continue
		}
		if first := len(e.GPUTypes) == 0; first || r.VCPUMilli < e.Request.VCPUMilli {
			e.Request.VCPUMilli = r.VCPUMilli
		}
		if first := len(e.GPUTypes) == 0; first || r.MemoryMiB < e.Request.MemoryMiB {
			e.Request.MemoryMiB = r.MemoryMiB
		}
		e.Request.GPUs, e.Request.MilliGPU, e.Request.MinVRAMMiB = r.GPUs, r.MilliGPU, r.MinVRAMMiB
		e.GPUTypes = append(e.GPUTypes, t)
	}
	if len(e.GPUTypes) == 0 && denied != nil {
		return compute.Errorf(compute.CodeForbidden, "no GPU type fits that the organization may use: %s",
			strings.Join(left, "; ")).Named(denied.Detail)
	}
	if len(e.GPUTypes) == 0 {
		return compute.Errorf(compute.CodeInvalid, "no GPU type fits: %s",
			strings.Join(append(left, "valid profiles: "+strings.Join(v.view.Profiles(), ", ")), "; ")).Named("never_fits")
	}
	p.GPUType = compute.AnyGPU
	e.Profile = p.String()
	e.Accept()
	if len(left) > 0 {
		e.Detail = clip("not considered: " + strings.Join(left, "; "))
	}
	return nil
}

// typesFor returns the GPU types that e accepts: those that it lists, else every type
// of a known node.
func (v resolver) typesFor(e *compute.Execution, p compute.Profile) ([]string, *compute.Error) {
	invalid := func(format string, args ...any) ([]string, *compute.Error) {
		return nil, compute.Errorf(compute.CodeInvalid, format, args...).Named("gpu_types")
	}
	if !p.IsGPU() || p.MIG != "" {
		return invalid("gpu_types go with whole GPUs or shares of one, as in gpu.any.2x or gpu.any.500m, not with %s", p)
	}
	var names []string
	for _, t := range e.GPUTypes {
		name := strings.TrimPrefix(strings.ToLower(t.Type), "gpu.")
		listed, err := compute.ParseProfile(name)
		switch {
		case err != nil || listed.String() != "gpu."+name || listed.Kind() != name || listed.MIG != "":
			return invalid("gpu_types are names of GPU types, not %q", t.Type)
		case name == compute.AnyGPU:
			names = append(names, v.view.wholeTypes()...)
			continue
		case !v.view.knowsType(name):
			return nil, v.unknownProfile("no node has GPUs of type \""+name+"\""+v.view.suggestion(name), "unknown_profile")
		}
		names = append(names, name)
	}
	if len(e.GPUTypes) == 0 {
		names = v.view.wholeTypes()
	}
	names = uniqueInOrder(names)
	if p.GPUType != compute.AnyGPU && !slices.Contains(names, p.GPUType) {
		return invalid("%s is not among gpu_types: name one of them, or gpu.any", p)
	}
	return names, nil
}

// uniqueInOrder returns each name once, where it first stands.
func uniqueInOrder(names []string) []string {
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) && len(out) < compute.MaxAnyOf {
			out = append(out, name)
		}
	}
	return out
}

// wholeTypes returns the types of the GPUs of known nodes that are not sliced, sorted.
func (v *nodeTables) wholeTypes() []string {
	return slices.DeleteFunc(v.GPUTypes(), func(kind string) bool { return strings.Contains(kind, ".") })
}

// knowsType reports whether a node has GPUs of a type, or the price list names it.
func (v *View) knowsType(name string) bool {
	_, listed := v.prices.Get(name)
	_, reported := v.offered.memory[name]
	return listed || reported
}

// acceptType returns a type that could host e, with its price and e's request for it;
// or why the type could not host it.
func (v resolver) acceptType(
	e *compute.Execution, p compute.Profile, name string,
) (compute.AcceptedType, compute.Request, *compute.Error) {
	p.GPUType = name
	r, price, refusal := v.size(p)
	if refusal == nil {
		refusal = v.view.needs(e, p, &r)
	}
	if refusal == nil {
		refusal = v.view.admitProfile(e.Org, p.String())
	}
	return compute.AcceptedType{Type: name, Price: price}, r, refusal
}

// resolveAny returns the request of a profile of any GPU type.
func (v *View) resolveAny(p compute.Profile) (compute.Request, compute.Price, *compute.Error) {
	e := compute.Execution{Profile: p.String()}
	if refusal := (resolver{v}).prepareAny(&e); refusal != nil {
		return compute.Request{}, 0, refusal
	}
	return e.Request, e.Price, nil
}
