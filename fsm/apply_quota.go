package fsm

import (
	"cmp"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/command"
)

// Limits of quotas.
const (
	maxQuotas   = 1_000 // Per organization.
	maxTag      = 256   // Bytes; a tag has 64 characters.
	maxMilliGPU = 1 << 40
)

// scope identifies a quota and the load of its live attempts: an organization, one of
// its keys or one of its tags.
type scope struct {
	org compute.OrgID
	key compute.KeyID
	tag string
}

func byScope(a, b scope) int {
	return cmp.Or(byOrg(a.org, b.org), byKey(a.key, b.key), strings.Compare(a.tag, b.tag))
}

func scopeOf(q *compute.Quota) scope { return scope{q.Org, q.Key, q.Tag} }

// scopesOf returns the scopes that e counts in while it has a place.
func scopesOf(e *compute.Execution) []scope {
	out := append(make([]scope, 0, 2+len(e.Tags)), scope{org: e.Org})
	if !e.Key.IsZero() {
		out = append(out, scope{org: e.Org, key: e.Key})
	}
	for i, tag := range e.Tags {
		if !slices.Contains(e.Tags[:i], tag) {
			out = append(out, scope{org: e.Org, tag: tag})
		}
	}
	return out
}

// holds reports whether e counts in its scopes: it has a place, and is no
// parent.
func holds(e *compute.Execution) bool {
	return e != nil && !e.Kind.IsParent() &&
		(e.Status == compute.StatusStarting || e.Status == compute.StatusRunning)
}

// load counts e in, or out with sign -1, everywhere it counts.
func (s *quota) load(e *compute.Execution, sign int) {
	for _, at := range scopesOf(e) {
		l, _ := s.view.loads.Get(at)
		l.Attempts += sign
		l.MilliGPU += int64(sign) * e.Request.HeldMilliGPU()
		if l == (compute.Load{}) {
			s.view.loads.Remove(at)
			continue
		}
		s.view.loads.Set(at, l)
	}
}

// setQuota replaces the quota of an organization, a key or a tag. A quota that grants
// nothing of its own is forgotten.
func (s *quota) setQuota(c command.SetQuota) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	q := c.Quota
	if refusal := s.checkQuota(&q); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	q.ChangedAt = 0
	if q == (compute.Quota{Org: q.Org, Key: q.Key, Tag: q.Tag}) {
		s.view.quotas.Drop(scopeOf(&q))
		return command.Result{ID: q.Org.UUID}
	}
	q.ChangedAt = s.view.meta.Now
	s.view.quotas.Put(&q)
	return command.Result{ID: q.Org.UUID}
}

// checkQuota refuses a quota of nobody and one out of bounds.
func (s *quota) checkQuota(q *compute.Quota) *compute.Error {
	invalid := func(format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeInvalid, format, args...).Named("quota")
	}
	org, known := s.view.orgs.Get(q.Org)
	known = known && org.DeletedAt.IsZero()
	_, owns := s.view.Key(q.Org, q.Key)
	_, replaces := s.view.quotas.Get(scopeOf(q))
	part := !q.Key.IsZero() || q.Tag != ""
	switch {
	case !known:
		return compute.Errorf(compute.CodeNotFound, "organization not found").Named("org_unknown")
	case !q.Key.IsZero() && !owns:
		return compute.Errorf(compute.CodeNotFound, "API key not found").Named("key_not_found")
	case !q.Key.IsZero() && q.Tag != "":
		return invalid("a quota is of an organization, of one of its keys or of one of its tags")
	case len(q.Tag) > maxTag:
		return invalid("a tag has at most %d bytes", maxTag)
	case q.Concurrent < 0 || q.MilliGPU < 0 || q.MilliGPU > maxMilliGPU:
		return invalid("limits are 0, for none, or above")
	case q.Weight < 0 || q.Weight > compute.MaxWeight || part && q.Weight != 0:
		return invalid("a weight is 1 to %d, and an organization's only", compute.MaxWeight)
	case !replaces && s.countQuotas(q.Org) >= maxQuotas:
		return compute.Errorf(compute.CodeForbidden,
			"the organization has %d quotas, which is the limit", maxQuotas).Named("too_many_quotas")
	}
	return nil
}

func (s *quota) countQuotas(org compute.OrgID) int {
	n := 0
	for at := range s.view.quotas.From(scope{org: org}) {
		if at.org != org {
			break
		}
		n++
	}
	return n
}

// Quotas returns the quotas of an organization: its own, with the cluster's
// limits where it has none, and then those of its keys and tags.
func (v *View) Quotas(org compute.OrgID) []compute.Quota {
	own := compute.Quota{Org: org}
	var parts []compute.Quota
	for at, q := range v.quotas.From(scope{org: org}) {
		switch {
		case at.org != org:
			return append([]compute.Quota{v.complete(own)}, parts...)
		case at == scope{org: org}:
			own = *q
		default:
			parts = append(parts, *q)
		}
	}
	return append([]compute.Quota{v.complete(own)}, parts...)
}

// OwnQuota returns the quota that the operator granted an organization itself, without
// the cluster's limits: zero where those hold.
func (v *quotaTables) OwnQuota(org compute.OrgID) compute.Quota {
	if q, ok := v.quotas.Get(scope{org: org}); ok {
		return *q
	}
	return compute.Quota{Org: org}
}

// complete fills in the limits of the cluster's configuration, which hold for all
// organizations.
func (v *clusterState) complete(own compute.Quota) compute.Quota {
	if own.Concurrent == 0 {
		own.Concurrent = v.meta.Settings.Concurrent
	}
	if own.Weight == 0 {
		own.Weight = compute.DefaultWeight
	}
	return own
}

// Load returns the sum of the live attempts that count in q.
func (v *quotaTables) Load(q compute.Quota) compute.Load {
	l, _ := v.loads.Get(scopeOf(&q))
	return l
}

// overQuota returns why e may not get a place now, ReasonNone when it may.
func (s *quota) overQuota(e *compute.Execution) compute.Reason {
	for _, at := range scopesOf(e) {
		q, ok := s.view.quotas.Get(at)
		own := compute.Quota{Org: at.org, Key: at.key, Tag: at.tag}
		if ok {
			own = *q
		}
		if at == (scope{org: e.Org}) {
			own = s.view.complete(own)
		} else if !ok {
			continue
		}
		if why := own.Refuses(s.view.Load(own), e); why != compute.ReasonNone {
			return why
		}
	}
	return compute.ReasonNone
}
