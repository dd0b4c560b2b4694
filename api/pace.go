package api

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"berth/compute"
)

// maxBuckets is how many clients a node keeps the pace of. Beyond it those
// that could be forgotten without giving them anything are.
const maxBuckets = 50_000

// pace limits how many requests each client makes, on this node.
type pace struct {
	limits Limits
	now    func() time.Time

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

func newPace(limits Limits, now func() time.Time) *pace {
	return &pace{limits: limits, now: now, buckets: make(map[string]*rate.Limiter)}
}

// caller counts a request of someone whose credential is good.
func (p *pace) caller(r *request) error {
	actor := r.caller.actor
	name := "root"
	switch {
	case !actor.Key.IsZero():
		name = "key " + actor.Key.String()
	case !actor.Root:
		name = "user " + actor.User.String()
	}
	return p.take(r, name, p.limits.Rate, p.limits.Burst)
}

// stranger counts a request without a good credential.
func (p *pace) stranger(r *request) error {
	return p.take(r, "ip "+r.ip, p.limits.AnonRate, p.limits.AnonBurst)
}

// take takes one token of the bucket name, or refuses.
func (p *pace) take(r *request, name string, perSecond float64, burst int) error {
	now := p.now()
	bucket := p.bucket(name, perSecond, burst, now)
	if bucket.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration(math.Ceil((1-bucket.TokensAt(now))/perSecond*1000)) * time.Millisecond
	wait = max(wait, time.Millisecond)
	seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	r.extra = map[string]string{
		"X-RateLimit-Limit":     fmt.Sprint(burst),
		"X-RateLimit-Remaining": "0",
		"X-RateLimit-Reset":     seconds,
	}
	return compute.Errorf(compute.CodeRateLimited, "Too many requests.").Retry(wait)
}

// bucket returns the bucket name, a full one when it is new.
func (p *pace) bucket(name string, perSecond float64, burst int, now time.Time) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()

	if b, ok := p.buckets[name]; ok {
		return b
	}
	if len(p.buckets) >= maxBuckets {
		p.forget(now)
	}
	b := rate.NewLimiter(rate.Limit(perSecond), burst)
	p.buckets[name] = b
	return b
}

// forget drops the buckets that are full, and when none is, all of them: a
// flood of clients must not cost more than that.
func (p *pace) forget(now time.Time) {
	for name, b := range p.buckets {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(p.buckets, name)
		}
	}
	if len(p.buckets) >= maxBuckets {
		clear(p.buckets)
	}
}
