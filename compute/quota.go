package compute

import "slices"

// Limits of quotas.
const (
	DefaultWeight = 100    // Weight of an organization without its own.
	MaxWeight     = 10_000 // A hundred times the default.
)

// Quota is the operator's limits for an organization, one of its API keys or
// one of its tags.
type Quota struct {
	Org        OrgID   `cbor:"1,keyasint"`
	Key        KeyID   `cbor:"2,keyasint,omitempty"` // Zero unless the quota is for an API key.
	Tag        string  `cbor:"3,keyasint,omitempty"` // "" unless the quota is for a tag.
	Concurrent int     `cbor:"4,keyasint,omitempty"` // Live attempts at once; 0 for no limit of its own.
	MilliGPU   int64   `cbor:"5,keyasint,omitempty"` // Thousandths of GPUs held at once; 0 for no limit.
	Weight     int     `cbor:"6,keyasint,omitempty"` // Weight in fair share, organizations only; 0 for DefaultWeight.
	ChangedAt  Instant `cbor:"7,keyasint,omitempty"`
}

// Load is the resources held by the live attempts of an organization, a key or
// a tag.
type Load struct {
	Attempts int
	MilliGPU int64
}

// Share is the fair-share usage of an organization at one instant.
type Share struct {
	Used   uint64 // Decayed usage of its attempts, in price × milliseconds: 1,000,000,000 are a credit.
	Rate   Price  // Usage of its live attempts, per second.
	Weight int    // 1 to MaxWeight.
}

// FairPrice returns the fair-share price of a second of e: its price, and at
// least 1 where GPUs are free of charge.
func (e *Execution) FairPrice() Price { return max(e.Price, 1) }

// HeldMilliGPU returns the thousandths of GPUs that r holds while it is placed.
// A MIG slice counts as its part of the device. Quotas, loads and reports on a
// queue use this measure.
func (r *Request) HeldMilliGPU() int64 {
	return int64(r.GPUs) * int64(r.MilliGPU) * int64(SliceMilli(r.GPUType, r.MIG)) / WholeGPU
}

// Refuses returns the reason for which q does not allow e beside the load l,
// ReasonNone when it does.
func (q *Quota) Refuses(l Load, e *Execution) Reason {
	held := e.Request.HeldMilliGPU()
	switch {
	case q.Concurrent > 0 && l.Attempts >= q.Concurrent:
		return q.concurrency()
	case q.MilliGPU > 0 && held > 0 && l.MilliGPU+held > q.MilliGPU:
		return ReasonQuotaGPUs
	}
	return ReasonNone
}

// concurrency returns the reason for which the limit of attempts refuses.
func (q *Quota) concurrency() Reason {
	switch {
	case !q.Key.IsZero():
		return ReasonKeyConcurrency
	case q.Tag != "":
		return ReasonTagConcurrency
	}
	return ReasonOrgConcurrency
}

// AppliesTo reports whether e counts toward q.
func (q *Quota) AppliesTo(e *Execution) bool {
	if q.Org != e.Org || !q.Key.IsZero() && q.Key != e.Key {
		return false
	}
	return q.Tag == "" || slices.Contains(e.Tags, q.Tag)
}
