package fsm

import (
	"cmp"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// Limits of quotas.
const (
	maxQuotas   = 1_000 // Per organization.
	maxTag      = 256   // Bytes; a tag has 64 characters.
	maxMilliGPU = 1 << 40
)

// scope identifies a quota and the load of its live attempts: an organization, one of
// its keys, one of its tags or a hardware profile.
type scope struct {
	org     compute.OrgID
	key     compute.KeyID
	tag     string
	profile string
}

func byScope(a, b scope) int {
	return cmp.Or(byOrg(a.org, b.org), byKey(a.key, b.key), strings.Compare(a.tag, b.tag),
		strings.Compare(a.profile, b.profile))
}

func scopeOf(q *compute.Quota) scope { return scope{q.Org, q.Key, q.Tag, q.Profile} }

// scopesOf returns the scopes that e counts in while it has a place.
func scopesOf(e *compute.Execution) []scope {
	const most = 4 // Without tags.
	out := append(make([]scope, 0, most+len(e.Tags)), scope{org: e.Org})
	if !e.Key.IsZero() {
		out = append(out, scope{org: e.Org, key: e.Key})
	}
	for i, tag := range e.Tags {
		if !slices.Contains(e.Tags[:i], tag) {
			out = append(out, scope{org: e.Org, tag: tag})
		}
	}
	kind := compute.ProfileType(e.Profile)
	if out = append(out, scope{org: e.Org, profile: kind}); kind != e.Profile {
		out = append(out, scope{org: e.Org, profile: e.Profile})
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

// setQuota replaces the quota of an organization, a key, a tag or a hardware profile. A
// quota that says nothing of its own is forgotten.
func (s *quota) setQuota(c command.SetQuota) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	q := c.Quota
	if refusal := s.checkQuota(&q); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	q.ChangedAt, q.CheckAt = 0, 0
	if q == (compute.Quota{Org: q.Org, Key: q.Key, Tag: q.Tag, Profile: q.Profile}) {
		s.view.dropQuota(scopeOf(&q))
		return command.Result{ID: q.Org.UUID}
	}
	q.ChangedAt = s.view.meta.Now
	if known, ok := s.view.quotas.Get(scopeOf(&q)); ok {
		q.CheckAt = known.CheckAt
	}
	s.view.storeQuota(&q)
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
	parts := 0
	for _, set := range []bool{!q.Key.IsZero(), q.Tag != "", q.Profile != ""} {
		if set {
			parts++
		}
	}
	switch {
	case !known:
		return compute.Errorf(compute.CodeNotFound, "organization not found").Named("org_unknown")
	case !q.Key.IsZero() && !owns && !replaces: // That of a key which is gone stays while its work goes on.
		return compute.Errorf(compute.CodeNotFound, "API key not found").Named("key_not_found")
	case parts > 1:
		return invalid("a quota is of an organization, one of its keys, one of its tags or a hardware profile")
	case len(q.Tag) > maxTag:
		return invalid("a tag has at most %d bytes", maxTag)
	case q.Concurrent < 0 || q.MilliGPU < 0 || q.MilliGPU > maxMilliGPU:
		return invalid("limits are 0, for none, or above")
	case q.Weight < 0 || q.Weight > compute.MaxWeight || parts > 0 && q.Weight != 0:
		return invalid("a weight is 1 to %d, and an organization's only", compute.MaxWeight)
	case q.Denied && (q.Profile == "" || q.Concurrent > 0 || q.MilliGPU > 0):
		return invalid("a hardware profile, and nothing else, is denied; then it has no limits")
	case !replaces && s.countQuotas(q.Org) >= maxQuotas:
		return compute.Errorf(compute.CodeForbidden,
			"the organization has %d quotas, which is the limit", maxQuotas).Named("too_many_quotas")
	case replaces: // Its hardware may be gone, with its price.
		return nil
	}
	return s.view.checkQuotaProfile(q.Profile)
}

// checkQuotaProfile refuses a quota for a hardware profile of an unknown type, and for one
// that is not named as executions name it.
func (v *View) checkQuotaProfile(name string) *compute.Error {
	if name == "" {
		return nil
	}
	p, err := compute.ParseProfile(name)
	switch {
	case err != nil || p.String() != name || p.GPUType == compute.AnyGPU:
		return compute.Errorf(compute.CodeInvalid, "hardware_profile is the name of a hardware profile such as "+
			"gpu.h100, for all its sizes, or gpu.h100.8x, not %q", name).Named("unknown_profile")
	case p.IsGPU() && !v.knowsType(p.GPUType):
		why := "no node has GPUs of type \"" + p.GPUType + "\"" + v.suggestion(p.GPUType)
		return resolver{v}.unknownProfile(why, "unknown_profile")
	}
	return nil
}

func (v *quotaTables) storeQuota(q *compute.Quota) { v.goneQuotas.Update(v.quotas.Put(q), q) }

func (v *quotaTables) dropQuota(at scope) {
	if old := v.quotas.Drop(at); old != nil {
		v.goneQuotas.Update(old, nil)
	}
}

// goneQuota is the place of a quota whose key is gone, by when it is checked.
type goneQuota struct {
	at compute.Instant
	scope
}

func byGoneQuota(a, b goneQuota) int {
	return cmp.Or(cmp.Compare(a.at, b.at), byScope(a.scope, b.scope))
}

func goneQuotaOf(q *compute.Quota) goneQuota { return goneQuota{q.CheckAt, scopeOf(q)} }

// endQuota removes the quota of a key that is gone. While work of the key goes on, the quota
// stays and is checked again: more of what waits would start at once otherwise.
func (s *quota) endQuota(at scope) {
	known, ok := s.view.quotas.Get(at)
	if !ok {
		return
	}
	if s.view.Format() < format.Rotation || !s.view.works(spender{org: at.org, key: at.key}) {
		s.view.dropQuota(at)
		return
	}
	q := *known
	q.CheckAt = s.view.meta.Now.Add(goneAge)
	s.view.storeQuota(&q)
}

// endQuotas removes the quotas of keys that are gone and of which no work goes on.
func (s *quota) endQuotas() {
	for _, due := range s.view.goneQuotas.FirstKeys(goneSweep) {
		if due.at > s.view.meta.Now {
			return
		}
		s.endQuota(due.scope)
	}
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

// Quotas returns the quotas of an organization: its own, with the cluster's limits where
// it has none, and then those of hardware profiles, tags and keys.
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
	return s.view.overQuotaAt(e, s.view.Load)
}

// overAnyLoad returns why e could not get a place if nothing else had one, ReasonNone when it
// could.
func (v *View) overAnyLoad(e *compute.Execution) compute.Reason {
	return v.overQuotaAt(e, func(compute.Quota) compute.Load { return compute.Load{} })
}

// overQuotaAt returns why e may not get a place beside the loads of its quotas.
func (v *View) overQuotaAt(e *compute.Execution, load func(compute.Quota) compute.Load) compute.Reason {
	for _, at := range scopesOf(e) {
		q, ok := v.quotas.Get(at)
		own := compute.Quota{Org: at.org, Key: at.key, Tag: at.tag, Profile: at.profile}
		if ok {
			own = *q
		}
		if at == (scope{org: e.Org}) {
			own = v.complete(own)
		} else if !ok {
			continue
		}
		if why := own.Refuses(load(own), e); why != compute.ReasonNone {
			return why
		}
	}
	return compute.ReasonNone
}

// Denies reports whether an organization may not use a hardware profile, or any of its type.
func (v *quotaTables) Denies(org compute.OrgID, profile string) bool {
	kind := compute.ProfileType(profile)
	if q, ok := v.quotas.Get(scope{org: org, profile: kind}); ok && q.Denied {
		return true
	}
	if kind == profile {
		return false
	}
	q, ok := v.quotas.Get(scope{org: org, profile: profile})
	return ok && q.Denied
}

// admitProfile refuses work of an organization on a hardware profile that it may not use.
func (v *View) admitProfile(org compute.OrgID, profile string) *compute.Error {
	if !v.Denies(org, profile) {
		return nil
	}
	open := slices.DeleteFunc(v.Profiles(), func(name string) bool { return v.Denies(org, name) })
	return compute.Errorf(compute.CodeForbidden, "the organization may not use %s: choose one of %s, or ask the operator",
		profile, cmp.Or(strings.Join(open, ", "), "none")).Named("profile_denied")
}

// admitHardware refuses to start more of e where its organization may use none of the
// hardware that e accepts.
func (v *View) admitHardware(e *compute.Execution) *compute.Error {
	if !e.AnyOf() {
		return v.admitProfile(e.Org, e.Profile)
	}
	var refusal *compute.Error
	for _, t := range e.GPUTypes {
		placed := *e
		placed.Take(t.Type)
		if refusal = v.admitProfile(e.Org, placed.Profile); refusal == nil {
			return nil
		}
	}
	return refusal
}
