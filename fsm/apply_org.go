package fsm

import (
	"berth/compute"
)

// createUser records a user, an organization of its own and the sign-up grant.
func (s *identity) createUser(c CreateUser) Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	if existing, ok := s.OrgBySlug(c.Org.Slug); c.Join && ok {
		return s.joinUser(c, existing.ID)
	}
	_, userKnown := s.users.Get(c.User.ID)
	_, orgKnown := s.orgs.Get(c.Org.ID)
	_, emailTaken := s.emails.Get(c.User.Email)
	_, slugTaken := s.slugs.Get(c.Org.Slug)
	switch {
	case c.User.ID.IsZero() || c.Org.ID.IsZero() || c.User.Email == "" || c.Org.Slug == "":
		return refuse(compute.CodeInvalid, "user", "a user needs an e-mail address and an organization")
	case userKnown || orgKnown:
		return refuse(compute.CodeConflict, "user_exists", "the user or the organization exists")
	case emailTaken:
		return refuse(compute.CodeConflict, "email_taken", "the e-mail address is taken")
	case slugTaken:
		return refuse(compute.CodeConflict, "slug_taken", "the slug %q is taken", c.Org.Slug)
	}
	u, o := c.User, c.Org
	u.Active, u.CreatedAt, o.CreatedAt = true, s.meta.Now, s.meta.Now
	s.putUser(&u)
	s.putOrg(&o)
	s.putMembership(&compute.Membership{
		Org: o.ID, User: u.ID, Role: compute.OrgOwner, Default: true, JoinedAt: s.meta.Now,
	})
	s.money.putAccount(&compute.Account{Org: o.ID, UpdatedAt: s.meta.Now})
	if amount := s.meta.Settings.SignupGrant; amount > 0 {
		s.money.post(compute.LedgerEntry{
			Org: o.ID, Kind: compute.LedgerGrant, Amount: amount, Note: "sign-up grant",
		})
	}
	return Result{ID: u.ID.UUID}
}
