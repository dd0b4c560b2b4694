package fsm

import (
	"cmp"
	"maps"
	"slices"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// ListedPrice is one line of the price list.
type ListedPrice struct {
	Name   string // A GPU type, or "cpu".
	Price  compute.Price
	Source compute.PriceSource
	Cost   compute.Price // To the operator; 0 for not known.
}

// checkPrices refuses a price list that names no type or has a price that is
// negative or absurd.
func checkPrices(prices map[string]compute.Price) *compute.Error {
	for name, p := range prices { // Any order: the message names none.
		if !priceable(name) || p < 0 || p > compute.MaxPrice {
			return compute.Errorf(compute.CodeInvalid,
				"prices are for \"cpu\" and GPU types in lower case, from 0 to %d micro-credits per second",
				compute.MaxPrice).Named("price")
		}
	}
	return nil
}

// priceable reports whether a price may be set for name.
func priceable(name string) bool {
	profile, err := compute.ParseProfile(name)
	return err == nil && (profile.GPUType == name || name == compute.CPUPrice)
}

// setPrices changes prices. Executions keep the price of their submit.
func (s *money) setPrices(c command.SetPrices) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	for _, list := range []map[string]compute.Price{c.Prices, c.Costs} {
		if refusal := checkPrices(list); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	byOperator := s.view.Format() >= format.Lab
	s.view.putPrices(c.Prices, func(string) bool { return byOperator })
	if s.view.Format() >= format.Containers {
		s.view.putCosts(c.Costs)
	}
	return command.Result{Count: len(c.Prices)}
}

// putPrices stores prices, with whether the operator chose each. Each is a
// record of its own, so their order does not matter.
func (v *moneyTables) putPrices(prices map[string]compute.Price, byOperator func(name string) bool) {
	for name, p := range prices { // Any order.
		put := &price{Name: name, Price: p, Operator: byOperator(name)}
		if known, ok := v.prices.Get(name); ok {
			put.Cost = known.Cost
		}
		v.prices.Put(put)
	}
}

// putCosts stores costs of resources that have a price of their own.
func (v *moneyTables) putCosts(costs map[string]compute.Price) {
	for name, cost := range costs { // Any order.
		if known, ok := v.prices.Get(name); ok {
			put := *known
			put.Cost = cost
			v.prices.Put(&put)
		}
	}
}

// providerCost returns the operator's cost of the metered time of e, 0 where the price
// list has no cost. It follows the costs of the moment, not of the submit.
func (s *money) providerCost(e *compute.Execution) compute.Credits {
	p, err := compute.ParseProfile(e.Profile)
	if err != nil || e.Kind.IsParent() || s.view.Format() < format.Containers {
		return 0
	}
	name := compute.CPUPrice
	if p.IsGPU() {
		name = p.GPUType
	}
	if name == compute.AnyGPU {
		if name = s.placedType(e); name == "" {
			return 0
		}
	}
	listed, ok := s.view.prices.Get(name)
	if !ok || listed.Cost == 0 {
		return 0
	}
	ran := e.Owed
	if e.Ran {
		ran += max(e.Duration, 0)
	}
	cost := proRata(listed.Cost, int64(p.Count), 1)
	if p.IsGPU() {
		parts, whole := partsOf(p)
		cost = proRata(listed.Cost, parts, whole)
	}
	return cost.Charge(ran)
}

// placedType returns the GPU type that the newest attempt of e got, "" for none.
func (s *money) placedType(e *compute.Execution) string {
	attempts := s.view.Attempts(e.ID)
	if len(attempts) == 0 || len(attempts[len(attempts)-1].GPUs) == 0 {
		return ""
	}
	newest := attempts[len(attempts)-1]
	n, ok := s.view.nodes.Get(newest.Node)
	if !ok {
		return ""
	}
	if i := gpuAt(n.GPUs, newest.GPUs[0].GPU); i >= 0 {
		return n.GPUs[i].Type
	}
	return ""
}

// removePrice withdraws a price that the operator set.
func (s *money) removePrice(c command.RemovePrice) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := checkPrices(map[string]compute.Price{c.Name: c.BuiltIn}); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.prices.Get(c.Name)
	switch {
	case !ok || !known.Operator:
		return refuse(compute.CodeNotFound, "price_not_found", "no operator has set a price for %q", c.Name)
	case c.BuiltIn > 0:
		s.view.prices.Put(&price{Name: c.Name, Price: c.BuiltIn})
	case c.Name == compute.CPUPrice:
		return refuse(compute.CodeInvalid, "price", "CPU-only work always has a price")
	default:
		s.view.prices.Drop(c.Name)
	}
	return command.Result{Count: 1}
}

// setBillingMode turns the enforcement of credits on or off. Executions that
// run are only asked for credits when their holds have to be extended.
func (s *money) setBillingMode(c command.SetBillingMode) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.view.meta.Settings.Meter = c.Meter
	return command.Result{}
}

// PriceOf returns the price of a second of a whole GPU of a type, or of a vCPU
// for "cpu", and its source. Below format 6 a type without a price has none.
func (v *View) PriceOf(name string) (p compute.Price, source compute.PriceSource, priced bool) {
	listed, ok := v.prices.Get(name)
	switch {
	case ok && listed.Operator:
		return listed.Price, compute.PriceOperator, true
	case ok:
		return listed.Price, compute.PriceBuiltIn, true
	case v.Format() < format.Lab || name == compute.CPUPrice:
		return 0, compute.PriceDefault, false
	}
	return compute.DefaultPrice(v.offered.memory[name]), compute.PriceDefault, true
}

// PriceList returns the price list with the defaults of the GPU types that it
// does not name, by name.
func (v *View) PriceList() []ListedPrice {
	names := make(map[string]bool, v.prices.Len())
	for p := range v.prices.Values() {
		names[p.Name] = true
	}
	for gpuType := range v.offered.memory { // Any order: the list is sorted.
		names[gpuType] = true
	}
	var list []ListedPrice
	for name := range maps.Keys(names) { // Any order.
		if p, source, priced := v.PriceOf(name); priced {
			line := ListedPrice{Name: name, Price: p, Source: source}
			if known, ok := v.prices.Get(name); ok {
				line.Cost = known.Cost
			}
			list = append(list, line)
		}
	}
	slices.SortFunc(list, func(a, b ListedPrice) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
