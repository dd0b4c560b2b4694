package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/command"
)

// createUser records a user, an organization of its own and the sign-up grant.
func (s *identity) createUser(c command.CreateUser) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	return s.newUser(c)
}

// newUser records a user, in an organization that exists or is made too.
func (s *identity) newUser(c command.CreateUser) command.Result {
	if existing, ok := s.view.OrgBySlug(c.Org.Slug); c.Join && ok {
		return s.joinUser(c, existing.ID)
	}
	_, userKnown := s.view.users.Get(c.User.ID)
	_, orgKnown := s.view.orgs.Get(c.Org.ID)
	_, emailTaken := s.view.emails.Get(c.User.Email)
	_, slugTaken := s.view.slugs.Get(c.Org.Slug)
	switch {
	case c.User.ID.IsZero() || c.Org.ID.IsZero() || c.User.Email == "" || c.Org.Slug == "":
		return refuse(compute.CodeInvalid, "user", "a user needs an e-mail address and an organization")
	case userKnown || orgKnown:
		return refuse(compute.CodeConflict, "user_exists", "the user or the organization exists")
	case emailTaken:
		return refuse(compute.CodeConflict, "email_taken", "the e-mail address is taken")
	case slugTaken:
		return refuseSlug(c.Org.Slug)
	}
	u, o := c.User, c.Org
	u.Active, u.CreatedAt, o.CreatedAt, o.Signing = true, s.view.meta.Now, s.view.meta.Now, nil
	s.view.putUser(&u)
	s.view.putOrg(&o)
	s.view.putMembership(&compute.Membership{
		Org: o.ID, User: u.ID, Role: compute.OrgOwner, Default: true, JoinedAt: s.view.meta.Now,
	})
	s.money.putAccount(&compute.Account{Org: o.ID, UpdatedAt: s.view.meta.Now})
	if amount := s.view.meta.Settings.SignupGrant; amount > 0 {
		s.money.post(compute.LedgerEntry{
			Org: o.ID, Kind: compute.LedgerGrant, Amount: amount, Note: "sign-up grant",
		})
	}
	return command.Result{ID: u.ID.UUID}
}

// createOrg makes an organization whose owner is the actor.
func (s *identity) createOrg(c command.CreateOrg) command.Result {
	if refusal := s.access.admitPerson(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	user, person := s.view.users.Get(c.Actor.User)
	_, known := s.view.orgs.Get(c.Org.ID)
	_, taken := s.view.slugs.Get(c.Org.Slug)
	owned := 0
	for _, m := range s.view.Memberships(c.Actor.User) {
		if m.Role == compute.OrgOwner {
			owned++
		}
	}
	switch {
	case !person || c.Org.ID.IsZero() || known || c.Org.Slug == "" || c.Org.Name == "":
		return refuse(compute.CodeInvalid, "org", "an organization needs a user, a name and a slug")
	case taken:
		return refuseSlug(c.Org.Slug)
	case owned >= compute.MaxOwnedOrgs:
		return refuse(compute.CodeConflict, "too_many_orgs", "you own %d organizations, which is the most", owned)
	case user.OrgsMade >= compute.MaxMadeOrgs:
		return refuse(compute.CodeConflict, "too_many_orgs",
			"you have made %d organizations, which is the most", user.OrgsMade)
	}
	maker := *user
	maker.OrgsMade++
	s.view.putUser(&maker)
	o := c.Org
	o.Trusted, o.CreatedAt, o.DeletedAt, o.Signing = false, s.view.meta.Now, 0, nil
	s.view.putOrg(&o)
	s.view.putMembership(&compute.Membership{
		Org: o.ID, User: c.Actor.User, Role: compute.OrgOwner, Default: len(s.view.Memberships(c.Actor.User)) == 0,
		JoinedAt: s.view.meta.Now,
	})
	s.money.putAccount(&compute.Account{Org: o.ID, UpdatedAt: s.view.meta.Now})
	return command.Result{ID: o.ID.UUID}
}

// setOrg changes the name, the slug or the billing address of an organization.
func (s *identity) setOrg(c command.SetOrg) command.Result {
	act := compute.ActRename
	if c.Slug != "" {
		act = compute.ActSetSlug
	}
	if refusal := s.access.admitMembers(c.Actor, c.Org, act); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.orgs.Get(c.Org)
	if !ok || !known.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	o := *known
	if c.Slug != "" && c.Slug != o.Slug {
		if _, taken := s.view.slugs.Get(c.Slug); taken {
			return refuseSlug(c.Slug)
		}
		o.Slug = c.Slug
	}
	if c.Name != "" {
		o.Name = c.Name
	}
	if c.BillingEmail != "" {
		o.BillingEmail = c.BillingEmail
	}
	s.view.putOrg(&o)
	return command.Result{ID: o.ID.UUID}
}

// deleteOrg ends an organization. Its secrets cannot be read from then on, because
// their key is gone.
func (s *identity) deleteOrg(c command.DeleteOrg) command.Result {
	if refusal := s.access.admitMembers(c.Actor, c.Org, compute.ActDelete); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.orgs.Get(c.Org)
	if !ok || !known.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	if live := s.countLive(c.Org); live > 0 {
		return refuseOrgInUse(known.Slug, live)
	}
	s.endOrg(c.Org)
	return command.Result{ID: c.Org.UUID}
}

// countLive returns how many executions and services of an organization have not ended.
func (s *identity) countLive(org compute.OrgID) int {
	live := 0
	for range s.view.Live(org) {
		live++
	}
	return live
}

// endOrg ends an organization without live executions.
func (s *identity) endOrg(id compute.OrgID) {
	for _, m := range s.view.Members(id) {
		s.leave(m)
	}
	s.dropInvites(id, compute.UserID{})
	s.view.dataKeys.Drop(id)
	s.money.endTokens(id)
	s.money.dropBudgets(id)
	s.dropEnvironments(id)
	for _, u := range slices.Collect(s.view.Uploads(id)) {
		s.upload.drop(u.ID)
	}
	s.object.endBucket(id)
	known, _ := s.view.orgs.Get(id)
	o := *known
	o.DeletedAt, o.Signing = s.view.meta.Now, nil
	s.view.putOrg(&o)
}

func refuseOrgInUse(slug string, live int) command.Result {
	return refuse(compute.CodeConflict, "org_in_use",
		"%d executions and services of %s have not ended: abort them first", live, slug)
}

// setDefaultOrg makes an organization the default one of the actor.
func (s *identity) setDefaultOrg(c command.SetDefaultOrg) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if _, member := s.view.Membership(c.Org, c.Actor.User); !member {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	for _, m := range s.view.Memberships(c.Actor.User) {
		if is := m.Org == c.Org; is != m.Default {
			changed := *m
			changed.Default = is
			s.view.putMembership(&changed)
		}
	}
	return command.Result{ID: c.Org.UUID}
}

func refuseSlug(slug string) command.Result {
	return refuse(compute.CodeConflict, "slug_taken", "the slug %q is taken", slug)
}
