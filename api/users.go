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

// availableHardware answers the profiles that the organization may use.
func (s *Server) availableHardware(r *request) (any, error) {
	return wire.AvailableHardware{Profiles: append([]string{}, r.view.Profiles()...)}, nil
}
