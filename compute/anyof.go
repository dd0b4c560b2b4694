package compute

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// AnyGPU stands in a profile for the GPU type of an execution that accepts
// several and is not placed: gpu.any, gpu.any.2x.
const AnyGPU = "any"

// MaxAnyOf is how many GPU types an execution accepts at most.
const MaxAnyOf = 16

// AcceptedType is a GPU type that an execution accepts, and the price of a second of its
// profile there. The price is fixed at submit.
type AcceptedType struct {
	Type  string `cbor:"1,keyasint"`
	Price Price  `cbor:"2,keyasint,omitempty"`
}

// AnyOf reports whether e accepts one of several GPU types.
func (e *Execution) AnyOf() bool { return len(e.GPUTypes) > 0 && !e.Kind.isSelection() }

// isSelection reports whether executions of the kind try GPU types, or are tried.
func (k Kind) isSelection() bool { return k == KindSelection || k == KindSubSelection }

// Accept has e ask for any of its GPU types, as while it waits: cheapest first, at
// the price of the dearest.
func (e *Execution) Accept() {
	if !e.AnyOf() {
		return
	}
	byPrice := slices.Clone(e.GPUTypes)
	slices.SortStableFunc(byPrice, func(a, b AcceptedType) int {
		return cmp.Or(cmp.Compare(a.Price, b.Price), strings.Compare(a.Type, b.Type))
	})
	names := make([]string, len(byPrice))
	for i, t := range byPrice {
		names[i] = t.Type
	}
	e.Request.GPUType, e.Request.AnyOf, e.Request.Ranked = "", names, true
	e.changeType(AnyGPU, byPrice[len(byPrice)-1].Price)
}

// Take has e ask for the GPU type that it gets, at the price of that type. It reports
// whether e accepts the type; if not, e is unchanged.
func (e *Execution) Take(gpuType string) bool {
	if !e.AnyOf() {
		return true
	}
	i := slices.IndexFunc(e.GPUTypes, func(t AcceptedType) bool { return t.Type == gpuType })
	if i < 0 {
		return false
	}
	e.Request.GPUType, e.Request.AnyOf, e.Request.Ranked = gpuType, nil, false
	e.changeType(gpuType, e.GPUTypes[i].Price)
	return true
}

// On returns e as it is once it has shares of the GPUs of n: with the type that it gets.
func (e *Execution) On(n *Node, shares []GPUShare) *Execution {
	if len(shares) == 0 || !e.AnyOf() {
		return e
	}
	at := slices.IndexFunc(n.GPUs, func(g GPU) bool { return g.ID == shares[0].GPU })
	if at < 0 {
		return e
	}
	placed := *e
	placed.Take(n.GPUs[at].Type)
	return &placed
}

// Narrowed returns the request of e, which waits, without those of its GPU types on which it
// would be refused, which is asked for e as it would be there. If none is left it returns the
// whole request, and why: for a limit rather than because the types are denied.
func (e *Execution) Narrowed(refused func(placed *Execution) Reason) (Request, Reason) {
	if !e.AnyOf() || e.Request.GPUType != "" {
		return e.Request, ReasonNone
	}
	var open []string
	why := ReasonNone
	for _, name := range e.Request.AnyOf {
		placed := *e
		if !placed.Take(name) {
			continue
		}
		switch reason := refused(&placed); {
		case reason == ReasonNone:
			open = append(open, name)
		case why == ReasonNone || why == ReasonProfileDenied:
			why = reason
		}
	}
	if len(open) == 0 {
		return e.Request, why
	}
	r := e.Request
	r.AnyOf = open
	return r, ReasonNone
}

// changeType sets the type and the price of e. The cost of its owed time stays the same.
func (e *Execution) changeType(gpuType string, price Price) {
	if p, err := ParseProfile(e.Profile); err == nil {
		p.GPUType = gpuType
		e.Profile = p.String()
	}
	e.Owed = e.Price.SameCost(e.Owed, price)
	e.Price = price
}

// SameCost returns the time that costs as much at other as d costs at p, rounded down.
func (p Price) SameCost(d time.Duration, other Price) time.Duration {
	if p <= 0 || other <= 0 || d <= 0 || p == other {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), uint64(p))
	if hi >= uint64(other) {
		return d // More than a duration can hold.
	}
	same, _ := bits.Div64(hi, lo, uint64(other))
	return time.Duration(min(same, 1<<62))
}
