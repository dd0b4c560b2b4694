package fsm

import (
	"math/bits"
	"time"

	"berth/compute"
)

// Constants of the decay of fair-share usage.
const (
	defaultHalfLife = 24 * time.Hour
	decaySteps      = 64            // Per half-life.
	decayFactor     = 4_248_701_965 // 2^(-1/64) in 1/2^32.
	decayShift      = 32
	maxUsed         = 1 << 60         // Sums are capped here to prevent overflow.
	forgotten       = 60 * decaySteps // Steps after which maxUsed has decayed to zero.
)

// usage is the fair-share usage of an organization: the decayed usage of its
// attempts up to an instant, and their rate since then. The half-life halves
// it, in steps of 1/64 of the half-life on the state's clock.
type usage struct {
	Org  compute.OrgID   `cbor:"1,keyasint"`
	Used uint64          `cbor:"2,keyasint,omitempty"` // Price × milliseconds, decayed up to At.
	Rate compute.Price   `cbor:"3,keyasint,omitempty"` // Sum over its live attempts, per second.
	At   compute.Instant `cbor:"4,keyasint"`
}

// until returns the usage at now, which is not before u.At.
func (u *usage) until(now compute.Instant, halfLife time.Duration) uint64 {
	if halfLife <= 0 {
		halfLife = defaultHalfLife
	}
	step := max(compute.Instant(halfLife.Milliseconds())/decaySteps, 1)
	used, at := u.Used, u.At
	if (now-at)/step > forgotten {
		used, at = 0, now-forgotten*step
	}
	if u.Rate == 0 {
		return decay(used, uint64(now/step-at/step))
	}
	for at < now {
		next := min((at/step+1)*step, now)
		used = add(used, u.Rate, next-at)
		if next%step == 0 {
			used = decay(used, 1)
		}
		at = next
	}
	return used
}

// decay returns used after some steps of decay, rounded down at each.
func decay(used, steps uint64) uint64 {
	used >>= min(steps/decaySteps, 63)
	for range steps % decaySteps {
		hi, lo := bits.Mul64(used, decayFactor)
		used = hi<<decayShift | lo>>decayShift
	}
	return used
}

// add adds the usage of some milliseconds at rate to used, at most maxUsed.
func add(used uint64, rate compute.Price, d compute.Instant) uint64 {
	hi, lo := bits.Mul64(uint64(max(rate, 0)), uint64(max(d, 0)))
	if hi > 0 || lo > maxUsed {
		return maxUsed
	}
	return min(used+lo, maxUsed)
}

// changeRate updates the usage of an organization to now and changes its rate from
// then on.
func (s *quota) changeRate(org compute.OrgID, rate compute.Price) {
	u := usage{Org: org}
	if known, ok := s.view.usage.Get(org); ok {
		u = *known
	}
	u.Used = u.until(s.view.meta.Now, s.view.meta.Settings.ShareHalfLife)
	u.Rate += rate
	u.At = s.view.meta.Now
	s.view.usage.Put(&u)
}

// Share returns the fair-share usage of an organization at the state's time.
func (v *View) Share(org compute.OrgID) compute.Share {
	out := compute.Share{Weight: compute.DefaultWeight}
	if q, ok := v.quotas.Get(scope{org: org}); ok && q.Weight > 0 {
		out.Weight = q.Weight
	}
	if u, ok := v.usage.Get(org); ok {
		out.Used, out.Rate = u.until(v.meta.Now, v.meta.Settings.ShareHalfLife), u.Rate
	}
	return out
}
