package fsm

import (
	"math/bits"
	"time"

	"berth/compute"
)

// How fair share forgets.
const (
	defaultHalfLife = 24 * time.Hour
	decaySteps      = 64            // Per half-life.
	decayFactor     = 4_248_701_965 // 2^(-1/64) in 1/2^32.
	decayShift      = 32
	maxUsed         = 1 << 60         // Sums stop here, so that none overflows.
	forgotten       = 60 * decaySteps // Steps after which nothing is left of maxUsed.
)

// usage is what fair share remembers of an organization: what its attempts
// have held up to an instant, and what they hold since. Half of it counts
// after the half-life, in steps of 1/64 of that on the state's clock.
type usage struct {
	Org  compute.OrgID   `cbor:"1,keyasint"`
	Used uint64          `cbor:"2,keyasint,omitempty"` // Price × milliseconds, decayed up to At.
	Rate compute.Price   `cbor:"3,keyasint,omitempty"` // Of its live attempts together, per second.
	At   compute.Instant `cbor:"4,keyasint"`
}

// until returns what u has used at now, which is not before u.At.
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

// decay returns what is left of used after some steps, rounded down at each.
func decay(used, steps uint64) uint64 {
	used >>= min(steps/decaySteps, 63)
	for range steps % decaySteps {
		hi, lo := bits.Mul64(used, decayFactor)
		used = hi<<decayShift | lo>>decayShift
	}
	return used
}

// add returns used and rate for some milliseconds, at most maxUsed.
func add(used uint64, rate compute.Price, d compute.Instant) uint64 {
	hi, lo := bits.Mul64(uint64(max(rate, 0)), uint64(max(d, 0)))
	if hi > 0 || lo > maxUsed {
		return maxUsed
	}
	return min(used+lo, maxUsed)
}

// useMore brings what an organization uses to now, and changes its rate from
// now on.
func (s *quota) useMore(org compute.OrgID, rate compute.Price) {
	u := usage{Org: org}
	if known, ok := s.usage.Get(org); ok {
		u = *known
	}
	u.Used = u.until(s.meta.Now, s.meta.Settings.ShareHalfLife)
	u.Rate += rate
	u.At = s.meta.Now
	s.usage.Put(&u)
}

// Share returns what fair share knows of an organization now.
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
