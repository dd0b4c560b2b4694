package billing

import (
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// prices serves the price list and the billing mode, to operators.
type prices struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *prices) Routes() []edge.Route {
	const list, mode = edge.Root + "/admin/prices", edge.Root + "/admin/billing/mode"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: list, Need: edge.NeedOperator,
			Summary: "The price of every GPU type and of a vCPU, and where it comes from.",
			Reply:   edge.Type[wire.PriceList](), Handle: g.list,
		},
		{
			Method: http.MethodPut, Path: list + "/{resource}", Need: edge.NeedOperator,
			Summary: "Set the price of a GPU type, or of a vCPU with cpu. Work submitted before keeps its price.",
			Body:    edge.Type[wire.NewPrice](), Reply: edge.Type[wire.ListedPrice](), Handle: g.set,
		},
		{
			Method: http.MethodDelete, Path: list + "/{resource}", Need: edge.NeedOperator,
			Summary: "Withdraw a price that was set: the built-in price counts again, or the default of the type.",
			Reply:   edge.Type[wire.Message](), Handle: g.remove,
		},
		{
			Method: http.MethodGet, Path: mode, Need: edge.NeedOperator,
			Summary: "Whether credits are enforced.",
			Reply:   edge.Type[wire.BillingMode](), Handle: g.mode,
		},
		{
			Method: http.MethodPut, Path: mode, Need: edge.NeedOperator,
			Summary: "Turn the enforcement of credits on or off. Running work is stopped only when its hold runs out.",
			Body:    edge.Type[wire.BillingMode](), Reply: edge.Type[wire.BillingMode](), Handle: g.setMode,
		},
	}
}

// list answers the price list.
func (g *prices) list(r *edge.Request) (any, error) {
	out := wire.PriceList{Prices: []wire.ListedPrice{}}
	for _, p := range r.View.PriceList() {
		out.Prices = append(out.Prices, listed(p))
	}
	out.Count = len(out.Prices)
	return out, nil
}

// listed returns a line of the price list.
func listed(p fsm.ListedPrice) wire.ListedPrice {
	out := wire.ListedPrice{Resource: p.Name, MicroCredits: p.Price, PerHour: p.Price.PerHour(), Source: p.Source}
	if p.Cost > 0 {
		cost := p.Cost.PerHour()
		out.Cost = &cost
	}
	return out
}

// resourceOf returns the resource that the path names: a GPU type, with or
// without "gpu." in front, or cpu.
func resourceOf(r *edge.Request) (string, error) {
	name := r.Params["resource"]
	p, err := compute.ParseProfile(name)
	if err != nil || strings.Contains(strings.TrimPrefix(strings.ToLower(name), "gpu."), ".") {
		var f wire.Faults
		f.Value("a price is of a GPU type, such as rtx_4090, or of cpu: counts, shares and slices follow from it",
			"path", "resource")
		return "", f.Err()
	}
	if !p.IsGPU() {
		return compute.CPUPrice, nil
	}
	return p.GPUType, nil
}

// set sets the price of a resource.
func (g *prices) set(r *edge.Request) (any, error) {
	name, err := resourceOf(r)
	if err != nil {
		return nil, err
	}
	in := r.Body.(*wire.NewPrice)
	costs := in.Costs(name)
	if len(costs) > 0 {
		if err := r.View.AllowsCosts(); err != nil {
			return nil, err
		}
	}
	_, err = g.ProposeAndSee(r, command.SetPrices{
		Op: g.Op(r), Actor: r.Caller.Actor, Prices: map[string]compute.Price{name: in.Price()}, Costs: costs,
	})
	if err != nil {
		return nil, err
	}
	for _, p := range r.View.PriceList() {
		if p.Name == name {
			return listed(p), nil
		}
	}
	return listed(fsm.ListedPrice{Name: name, Price: in.Price(), Source: compute.PriceOperator}), nil
}

// remove withdraws the price of a resource.
func (g *prices) remove(r *edge.Request) (any, error) {
	name, err := resourceOf(r)
	if err != nil {
		return nil, err
	}
	_, err = g.ProposeAndSee(r, command.RemovePrice{
		Op: g.Op(r), Actor: r.Caller.Actor, Name: name, BuiltIn: compute.BuiltInPrices()[name],
	})
	if err != nil {
		return nil, err
	}
	price, source, priced := r.View.PriceOf(name)
	if !priced {
		return wire.Message{Message: "The price of " + name + " is withdrawn."}, nil
	}
	return wire.Message{
		Message: "The price of " + name + " is withdrawn: it costs " + price.PerHour().String() +
			" credits per hour (" + source.String() + ").",
	}, nil
}

// mode answers whether credits are enforced.
func (g *prices) mode(r *edge.Request) (any, error) { return modeOf(r.View), nil }

// modeOf returns the billing mode of a view.
func modeOf(view *fsm.View) wire.BillingMode {
	if view.Settings().Meter {
		return wire.BillingMode{Mode: "meter"}
	}
	return wire.BillingMode{Mode: "enforce"}
}

// setMode turns the enforcement of credits on or off.
func (g *prices) setMode(r *edge.Request) (any, error) {
	_, err := g.ProposeAndSee(r, command.SetBillingMode{
		Op: g.Op(r), Actor: r.Caller.Actor, Meter: r.Body.(*wire.BillingMode).Mode == "meter",
	})
	if err != nil {
		return nil, err
	}
	return modeOf(r.View), nil
}
