package account

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// limits serves quotas, to operators.
type limits struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *limits) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/quotas", Need: edge.NeedOperator,
			Summary: "The limits and usage of an organization, its API keys, its tags and hardware profiles.",
			Query:   edge.Type[wire.QuotaQuery](), Reply: edge.Type[wire.OrgQuotas](), Handle: g.orgQuotas,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/quotas", Need: edge.NeedOperator,
			Summary: "Replace the limits of an organization, an API key, a tag or a hardware profile. All zero removes them.",
			Body:    edge.Type[wire.NewQuota](), Reply: edge.Type[wire.OrgQuotas](), Handle: g.setQuota,
		},
	}
}

// gpusFor returns how many of the cluster's GPUs a quota lets an organization
// hold. It rounds up, because an organization may use a GPU of which only a
// share is free to it. A GPU in MIG mode counts as its slices. Those of types that the
// organization may not use do not count.
func gpusFor(view *fsm.View, own compute.Quota) int {
	milli := int64(0)
	for n := range view.Nodes() {
		if !n.Schedulable() {
			continue
		}
		for i := range n.GPUs {
			g := &n.GPUs[i]
			kind := compute.Profile{GPUType: g.Type, MIG: g.Slice()}.Kind()
			if g.Health == compute.HealthOK && !g.Sliced() && !view.Denies(own.Org, "gpu."+kind) {
				milli += int64(compute.SliceMilli(g.Type, g.Slice()))
			}
		}
	}
	if own.MilliGPU > 0 {
		milli = min(milli, own.MilliGPU)
	}
	return int((milli + compute.WholeGPU - 1) / compute.WholeGPU)
}

// limitsOf returns what an organization, its keys, its tags and hardware profiles are granted.
func limitsOf(view *fsm.View, org compute.OrgID) []wire.Limit {
	out := []wire.Limit{}
	for _, q := range view.Quotas(org) {
		load := view.Load(q)
		l := wire.Limit{
			Scope: "organization", MaxConcurrent: q.Concurrent, InUse: load.Attempts,
			MaxGPUMilli: q.MilliGPU, GPUMilliInUse: load.MilliGPU, Allowed: !q.Denied, Inherited: []string{},
		}
		switch {
		case !q.Key.IsZero():
			l.Scope, l.KeyID = "key", &q.Key
		case q.Tag != "":
			l.Scope, l.Tag = "tag", &q.Tag
		case q.Profile != "":
			l.Scope, l.Profile = "hardware_profile", &q.Profile
		default:
			l.Weight, l.Inherited = &q.Weight, inherited(view.OwnQuota(org))
		}
		out = append(out, l)
	}
	return out
}

// inherited returns the fields of an organization's row that come from the
// cluster's configuration.
func inherited(own compute.Quota) []string {
	names := []string{}
	if own.Concurrent == 0 {
		names = append(names, "max_concurrent")
	}
	if own.Weight == 0 {
		names = append(names, "weight")
	}
	return names
}

// fairShareOf returns an organization's weight and usage in fair share.
func fairShareOf(view *fsm.View, org compute.OrgID) wire.FairShare {
	const perMicroCredit = 1000 // Price × milliseconds.
	share := view.Share(org)
	return wire.FairShare{
		Weight: share.Weight, Used: compute.Credits(share.Used / perMicroCredit), HeldPerHour: share.Rate.PerHour(),
	}
}

// orgQuotas answers what an organization is granted.
func (g *limits) orgQuotas(r *edge.Request) (any, error) {
	org, err := handler.FindOrg(r.View, r.Query.(*wire.QuotaQuery).Org)
	if err != nil {
		return nil, err
	}
	return wire.OrgQuotas{
		Org: org.Slug, Limits: limitsOf(r.View, org.ID), FairShare: fairShareOf(r.View, org.ID),
	}, nil
}

// setQuota replaces what an organization, a key, a tag or a hardware profile is granted.
func (g *limits) setQuota(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewQuota)
	org, err := handler.FindOrg(r.View, in.Org)
	if err != nil {
		return nil, err
	}
	q := compute.Quota{
		Org: org.ID, Tag: in.Tag, Concurrent: in.MaxConcurrent, MilliGPU: int64(in.MaxGPUMilli), Weight: in.Weight,
	}
	if in.KeyID != "" {
		if q.Key, err = compute.ParseKeyID(in.KeyID); err != nil {
			return nil, edge.NotFound()
		}
	}
	if in.Profile != "" {
		p, err := compute.ParseProfile(in.Profile)
		if err != nil {
			return nil, err // The body was checked, so this cannot happen.
		}
		q.Profile, q.Denied = p.String(), in.Allowed != nil && !*in.Allowed
	}
	if _, err := g.ProposeAndSee(r, command.SetQuota{Op: g.Op(r), Actor: r.Caller.Actor, Quota: q}); err != nil {
		return nil, err
	}
	return wire.OrgQuotas{
		Org: org.Slug, Limits: limitsOf(r.View, org.ID), FairShare: fairShareOf(r.View, org.ID),
	}, nil
}
