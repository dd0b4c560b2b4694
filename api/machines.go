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
			PricePerHour: price.PerHour(), MIG: orNull(compute.MIGProfile(profile.MIG)),
		}
		if request.IsGPU() {
			describeGPUs(&m, r.view, request)
		}
		for n := range r.view.Nodes() {
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

// describeGPUs fills in what m promises of each GPU: what the least of those
// that the request may get has.
func describeGPUs(m *wire.MachineType, view *fsm.View, q compute.Request) {
	own, share := compute.IsolationNone, compute.IsolationNone
	for n := range view.Nodes() {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !g.Is(q) {
				continue
			}
			if vram := float64(g.VRAMMiB) / 1024; m.VRAMGB == 0 || vram < m.VRAMGB {
				m.VRAMGB = vram
			}
			own = own.Weaker(g.Isolation(q.MilliGPU))
			share = share.Weaker(g.Isolation(1))
		}
	}
	m.Isolation, m.IsolationBy = orNull(own.Level()), orNull(own.String())
	if q.GPUs == 1 && q.MIG == "" {
		m.ShareIsolation = orNull(share.Level())
	}
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
		for i := range n.GPUs {
			g := &n.GPUs[i]
			switch {
			case !g.Is(q) || g.Health != compute.HealthOK:
			case free:
				gpus += (compute.WholeGPU - g.UsedMilli) / q.MilliGPU
			default:
				gpus += compute.WholeGPU / q.MilliGPU
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
