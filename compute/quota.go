package compute

import (
	"slices"
	"strings"
)

// Limits of quotas.
const (
	DefaultWeight = 100    // Weight of an organization without its own.
	MaxWeight     = 10_000 // A hundred times the default.
)

// Quota is the operator's limits for an organization, one of its API keys, one of
// its tags, or the hardware profiles that it uses.
type Quota struct {
	Org        OrgID   `cbor:"1,keyasint"`
	Key        KeyID   `cbor:"2,keyasint,omitempty"` // Zero unless the quota is for an API key.
	Tag        string  `cbor:"3,keyasint,omitempty"` // "" unless the quota is for a tag.
	Concurrent int     `cbor:"4,keyasint,omitempty"` // Live attempts at once; 0 for no limit of its own.
	MilliGPU   int64   `cbor:"5,keyasint,omitempty"` // Thousandths of GPUs held at once; 0 for no limit.
	Weight     int     `cbor:"6,keyasint,omitempty"` // Weight in fair share, organizations only; 0 for DefaultWeight.
	ChangedAt  Instant `cbor:"7,keyasint,omitempty"`

	// Profile is the canonical name of a hardware profile, "" unless the quota is for one. One
	// without a size stands for all sizes of its type: gpu.h100 also for gpu.h100.2x.
	Profile string `cbor:"8,keyasint,omitempty"`
	Denied  bool   `cbor:"9,keyasint,omitempty"` // The organization may not use the profile.

	// CheckAt is when the quota of an API key that is gone is removed if no work of the key goes
	// on by then. Zero while the key exists.
	CheckAt Instant `cbor:"10,keyasint,omitempty"`
}

// Load is the resources held by the live attempts of an organization, a key, a
// tag or a hardware profile.
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
	case q.Denied:
		return ReasonProfileDenied
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
	case q.Profile != "":
		return ReasonProfileConcurrency
	}
	return ReasonOrgConcurrency
}

// AppliesTo reports whether e counts toward q. Work that accepts several GPU types counts
// toward a quota for a hardware profile only once it has one.
func (q *Quota) AppliesTo(e *Execution) bool {
	if q.Org != e.Org || !q.Key.IsZero() && q.Key != e.Key || q.Profile != "" && !covers(q.Profile, e.Profile) {
		return false
	}
	return q.Tag == "" || slices.Contains(e.Tags, q.Tag)
}

// covers reports whether a quota for one hardware profile is for another one too.
func covers(profile, other string) bool {
	return profile == other || profile == ProfileType(other)
}

// ProfileType returns the canonical name of a hardware profile without its size: gpu.h100
// for gpu.h100.2x.
func ProfileType(name string) string {
	start := 0
	if strings.HasPrefix(name, gpuPrefix) {
		start = len(gpuPrefix)
	}
	if end := strings.IndexByte(name[start:], '.'); end >= 0 {
		return name[:start+end]
	}
	return name
}

// gpuPrefix begins the canonical names of hardware profiles with GPUs.
const gpuPrefix = "gpu."
