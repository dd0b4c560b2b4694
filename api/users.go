package api

import (
	"berth/api/wire"
)

// userStatus answers who the caller is.
func (s *Server) userStatus(r *request) (any, error) {
	user, org := r.caller.user, r.caller.org
	active := 0
	for _, k := range r.view.Keys(org.ID) {
		if k.Active && (k.ExpiresAt.IsZero() || k.ExpiresAt > r.view.Now()) {
			active++
		}
	}
	return wire.UserStatus{
		UserID: user.ID, OrgID: org.ID, Email: user.Email, FullName: orNull(user.FullName),
		CreatedAt: user.CreatedAt, IsActive: user.Active, ActiveKeys: active,
		CreditBalance: r.view.Account(org.ID).Available(), Status: "authenticated",
	}, nil
}

// quotas answers what the organization may use, and uses.
func (s *Server) quotas(r *request) (any, error) {
	org := r.caller.actor.Org
	used := make(map[string]int)
	for e := range r.view.Live(org) {
		if e.Epoch > 0 {
			used[e.Profile]++
		}
	}
	gpus := 0
	for n := range r.view.Nodes() {
		gpus += len(n.GPUs)
	}
	limit := r.view.ConcurrentLimit(org)
	out := wire.Quotas{Quotas: []wire.Quota{}, MaxConcurrentRuns: limit, MaxGPUs: gpus}
	for _, profile := range r.view.Profiles() {
		out.Quotas = append(out.Quotas, wire.Quota{
			HardwareProfile: profile, Allowed: true, MaxConcurrent: limit, InUse: used[profile],
		})
	}
	return out, nil
}

// availableHardware answers the profiles that the organization may use.
func (s *Server) availableHardware(r *request) (any, error) {
	return wire.AvailableHardware{Profiles: append([]string{}, r.view.Profiles()...)}, nil
}
