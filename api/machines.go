package api

import (
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// meterExecution is the meter of executions.
const meterExecution = "run_running"

// machineTypes answers the profiles that the nodes make up.
func (s *Server) machineTypes(r *request) (any, error) {
	out := wire.MachineTypes{MachineTypes: []wire.MachineType{}}
	for _, name := range r.view.Profiles() {
		profile, request, price, err := r.view.Resolve(name)
		if err != nil {
			return nil, err
		}
		m := wire.MachineType{
			HardwareProfile: name, GPUType: orNull(profile.GPUType), GPUCount: request.GPUs,
			VCPU: float64(request.VCPUMilli) / 1000, MemoryGB: float64(request.MemoryMiB) / 1024,
			PricePerHour: price.PerHour(),
		}
		for n := range r.view.Nodes() {
			m.VRAMGB = leastVRAM(m.VRAMGB, n, profile.GPUType)
			m.Total += fits(n, request, false)
			if n.Schedulable() {
				m.Available += fits(n, request, true)
			}
		}
		out.MachineTypes = append(out.MachineTypes, m)
	}
	out.Count = len(out.MachineTypes)
	return out, nil
}

// leastVRAM returns the smaller of least, in GiB and zero for none yet, and
// what n's GPUs of the type have.
func leastVRAM(least float64, n *compute.Node, gpuType string) float64 {
	for _, g := range n.GPUs {
		if vram := float64(g.VRAMMiB) / 1024; g.Type == gpuType && (least == 0 || vram < least) {
			least = vram
		}
	}
	return least
}

// fits returns how many requests n holds when it is empty, or how many more
// now when only what is free counts.
func fits(n *compute.Node, q compute.Request, free bool) int {
	vcpu, memory := n.VCPUMilli, n.MemoryMiB
	if free {
		vcpu, memory = vcpu-n.UsedVCPUMilli, memory-n.UsedMemoryMiB
	}
	count := int64(1 << 30)
	if q.VCPUMilli > 0 {
		count = min(count, vcpu/q.VCPUMilli)
	}
	if q.MemoryMiB > 0 {
		count = min(count, memory/q.MemoryMiB)
	}
	if q.GPUs > 0 {
		gpus := 0
		for _, g := range n.GPUs {
			if g.Type == q.GPUType && g.Health == compute.HealthOK && (!free || g.UsedMilli == 0) {
				gpus++
			}
		}
		count = min(count, int64(gpus/q.GPUs))
	}
	return int(max(count, 0))
}

// pricing answers what a second of each profile costs.
func (s *Server) pricing(r *request) (any, error) {
	out := wire.Pricing{Prices: []wire.Price{}}
	for _, name := range r.view.Profiles() {
		price, err := priceOf(r.view, name)
		if err != nil {
			return nil, err
		}
		out.Prices = append(out.Prices, price)
	}
	out.Count = len(out.Prices)
	return out, nil
}

// priceOf returns the line of the price book for a profile.
func priceOf(view *fsm.View, profile string) (wire.Price, error) {
	_, _, price, err := view.Resolve(profile)
	if err != nil {
		return wire.Price{}, err
	}
	return wire.Price{
		MeterSlug: meterExecution, Resource: profile,
		AppliesTo: wire.AppliesTo{HardwareProfile: profile}, Unit: "second",
		UnitPrice: compute.Credits(price).String(), UnitPricePerHour: price.PerHour().String(),
	}, nil
}
