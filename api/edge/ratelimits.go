package edge

import (
	"strconv"
	"time"

	"berth/api/auth"
	"berth/compute"
)

// rateLimits bounds how many requests each client makes, on this node.
type rateLimits struct {
	limits    Limits
	callers   *auth.Throttle
	orgs      *auth.Throttle
	strangers *auth.Throttle
}

func newRateLimits(limits Limits, now func() time.Time) *rateLimits {
	return &rateLimits{
		limits:    limits,
		callers:   auth.NewThrottle(limits.Rate*60, limits.Burst, now),
		orgs:      auth.NewThrottle(limits.OrgRate*60, limits.OrgBurst, now),
		strangers: auth.NewThrottle(limits.AnonRate*60, limits.AnonBurst, now),
	}
}

// caller counts a request of someone whose credential is good.
func (l *rateLimits) caller(r *Request) error {
	actor := r.Caller.Actor
	name := "root"
	switch {
	case !actor.Key.IsZero():
		name = "key " + string(actor.Key.UUID[:])
	case !actor.Root:
		name = "user " + string(actor.User.UUID[:])
	}
	wait, ok := l.callers.Allow(name)
	if err := r.limited(wait, ok, l.limits.Burst); err != nil || actor.Org.IsZero() {
		return err
	}
	wait, ok = l.orgs.Allow(string(actor.Org.UUID[:]))
	return r.limited(wait, ok, l.limits.OrgBurst)
}

// stranger counts a request without a good credential.
func (l *rateLimits) stranger(r *Request) error {
	wait, ok := l.strangers.Allow(r.customer())
	return r.limited(wait, ok, l.limits.AnonBurst)
}

// limited refuses a request that came too soon, with the time to retry.
func (r *Request) limited(wait time.Duration, ok bool, burst int) error {
	if ok {
		return nil
	}
	r.extra = map[string]string{
		"X-RateLimit-Limit":     strconv.Itoa(burst),
		"X-RateLimit-Remaining": "0",
		"X-RateLimit-Reset":     strconv.Itoa(int((wait + time.Second - 1) / time.Second)),
	}
	return compute.Errorf(compute.CodeRateLimited, "Too many requests.").Retry(max(wait, time.Millisecond))
}
