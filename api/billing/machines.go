package billing

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// machines serves Machine Types and Pricing.
type machines struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *machines) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/machine-types", Tag: "Machine Types", Need: edge.NeedCaller,
			Summary: "The hardware profiles that the nodes offer.",
			Reply:   edge.Type[wire.MachineTypes](), Handle: g.machineTypes,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/pricing", Tag: "Pricing", Need: edge.NeedCaller,
			Summary: "The price of each hardware profile, of the organization's deployments, and of tokens.",
			Reply:   edge.Type[wire.Pricing](), Handle: g.pricing,
		},
	}
}

// The meters of executions, of the replicas of deployments, and of tokens.
const (
	meterExecution  = "run_running"
	meterDeployment = "deployment_running"
	meterPrompt     = "serverless_inference_prompt_tokens"
	meterCompletion = "serverless_inference_completion_tokens"
)

// machineTypes answers the profiles that the nodes offer.
func (g *machines) machineTypes(r *edge.Request) (any, error) {
	nodes := handler.CapacitiesOf(r.View)
	out := wire.MachineTypes{MachineTypes: []wire.MachineType{}}
	names := r.View.Profiles()
	if _, _, _, err := r.View.Resolve(anyGPU); err == nil {
		names = append(names, anyGPU)
	}
	for _, name := range names {
		profile, request, price, err := r.View.Resolve(name)
		if err != nil {
			return nil, err
		}
		m := wire.MachineType{
			HardwareProfile: name, GPUType: wire.OrNull(profile.GPUType), GPUCount: request.GPUs,
			VCPU: float64(request.VCPUMilli) / 1000, MemoryGB: float64(request.MemoryMiB) / 1024,
			PricePerHour: price.PerHour(), PriceSource: sourceOf(r.View, profile),
			MIG: wire.OrNull(compute.MIGProfile(profile.MIG)),
		}
		if request.IsGPU() {
			describeGPUs(&m, r.View, request)
		}
		m.Total, m.Available = nodes.Count(request)
		out.MachineTypes = append(out.MachineTypes, m)
	}
	out.Count = len(out.MachineTypes)
	return out, nil
}

// anyGPU is the profile that accepts every GPU type. Its price is that of the dearest.
const anyGPU = "gpu." + compute.AnyGPU

// sourceOf returns where the price of a profile comes from.
func sourceOf(view *fsm.View, p compute.Profile) compute.PriceSource {
	name := compute.CPUPrice
	if p.GPUType == compute.AnyGPU {
		p.GPUType = dearest(view)
	}
	if p.IsGPU() {
		name = p.GPUType
	}
	_, source, _ := view.PriceOf(name)
	return source
}

// dearest returns the GPU type with the highest price of those that nodes have.
func dearest(view *fsm.View) (name string) {
	most := compute.Price(-1)
	for _, kind := range view.GPUTypes() {
		p, err := compute.ParseProfile(kind)
		if err != nil || p.MIG != "" {
			continue
		}
		if price, _, priced := view.PriceOf(p.GPUType); priced && price > most {
			most, name = price, p.GPUType
		}
	}
	return name
}

// describeGPUs sets what m guarantees of each GPU: the minimum over the GPUs
// that the request may get.
func describeGPUs(m *wire.MachineType, view *fsm.View, q compute.Request) {
	own, share := compute.IsolationNone, compute.IsolationNone
	least := &compute.GPU{Capability: math.MaxInt}
	for n := range view.Nodes() {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !g.Is(q) {
				continue
			}
			if vram := float64(g.VRAMMiB) / 1024; m.VRAMGB == 0 || vram < m.VRAMGB {
				m.VRAMGB = vram
			}
			if g.Capability < least.Capability {
				least = g
			}
			own = own.Weaker(g.Isolation(q.MilliGPU))
			share = share.Weaker(g.Isolation(1))
		}
	}
	if least.Type != "" {
		m.Capability, m.BFloat16 = wire.CapabilityOf(least)
	}
	m.Isolation, m.IsolationBy = wire.OrNull(own.Level()), wire.OrNull(own.String())
	if q.GPUs == 1 && q.MIG == "" {
		m.ShareIsolation = wire.OrNull(share.Level())
	}
}

// pricedDeployments bounds the deployments of an organization in the price book.
const pricedDeployments = 1000

// pricing answers what a second of each profile costs, for an execution and for a replica of a
// deployment, a second of a replica of each of the caller's deployments, and a token.
func (g *machines) pricing(r *edge.Request) (any, error) {
	out := wire.Pricing{Prices: []wire.Price{}}
	for _, meter := range []string{meterExecution, meterDeployment} {
		for _, name := range r.View.Profiles() {
			price, err := priceOf(r.View, meter, name)
			if err != nil {
				return nil, err
			}
			out.Prices = append(out.Prices, price)
		}
	}
	left := pricedDeployments
	for e := range r.View.Live(r.Caller.Actor.Org) {
		if left > 0 && e.Deployment != nil && e.Stop == compute.StopNone {
			out.Prices = append(out.Prices, replicaPrice(r.View, e))
			left--
		}
	}
	for m := range r.View.Models() {
		out.Prices = append(out.Prices, tokenPrice(m, meterPrompt, m.Prices.Prompt),
			tokenPrice(m, meterCompletion, m.Prices.Completion))
	}
	out.Count = len(out.Prices)
	return out, nil
}

// tokenPrice returns the line of the price book for a kind of tokens. A price of a
// million tokens has two decimals, so that of one has eight.
func tokenPrice(m *compute.Model, meter string, million compute.Credits) wire.Price {
	units := (int64(million) + 9_999) / 10_000
	text := strconv.FormatInt(units/100_000_000, 10)
	if rest := units % 100_000_000; rest > 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%08d", rest), "0")
	}
	return wire.Price{
		MeterSlug: meter, Resource: m.ID, AppliesTo: wire.AppliesTo{Deployment: &m.Deployment},
		Unit: "token", UnitPrice: text, Source: compute.PriceOperator,
	}
}

// replicaPrice returns the line of the price book for the replicas of a deployment, which keep the
// price that the deployment was created with. The source is that of its hardware's price today.
func replicaPrice(view *fsm.View, e *compute.Execution) wire.Price {
	out := wire.Price{
		MeterSlug: meterDeployment, Resource: e.Profile, AppliesTo: wire.AppliesTo{Deployment: &e.ID}, Unit: "second",
		UnitPrice: compute.Credits(e.Price).String(), UnitPricePerHour: e.Price.PerHour().String(),
	}
	if p, err := compute.ParseProfile(e.Profile); err == nil {
		out.Source = sourceOf(view, p)
	}
	return out
}

// priceOf returns the line of the price book of a meter for a profile.
func priceOf(view *fsm.View, meter, profile string) (wire.Price, error) {
	p, _, price, err := view.Resolve(profile)
	if err != nil {
		return wire.Price{}, err
	}
	return wire.Price{
		MeterSlug: meter, Resource: profile,
		AppliesTo: wire.AppliesTo{HardwareProfile: profile}, Unit: "second",
		UnitPrice: compute.Credits(price).String(), UnitPricePerHour: price.PerHour().String(),
		Source: sourceOf(view, p),
	}, nil
}
