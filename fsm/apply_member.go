package fsm

import (
	"berth/compute"
	"berth/fsm/command"
)

// joinUser records a user as a member of an organization that exists.
func (s *identity) joinUser(c command.CreateUser, org compute.OrgID) command.Result {
	_, userKnown := s.view.users.Get(c.User.ID)
	_, emailTaken := s.view.emails.Get(c.User.Email)
	switch {
	case c.User.ID.IsZero() || c.User.Email == "":
		return refuse(compute.CodeInvalid, "user", "a user needs an e-mail address")
	case c.Role > compute.OrgOwner:
		return refuse(compute.CodeInvalid, "role", "there is no such role")
	case userKnown:
		return refuse(compute.CodeConflict, "user_exists", "the user exists")
	case emailTaken:
		return refuse(compute.CodeConflict, "email_taken", "the e-mail address is taken")
	}
	u := c.User
	u.Active, u.CreatedAt = true, s.view.meta.Now
	s.view.putUser(&u)
	s.view.putMembership(&compute.Membership{Org: org, User: u.ID, Role: c.Role, Default: true, JoinedAt: s.view.meta.Now})
	return command.Result{ID: u.ID.UUID}
}

// setUser changes the password of a user, or whether the user is active.
func (s *identity) setUser(c command.SetUser) command.Result {
	own := c.Actor.User == c.User && !c.Actor.Root
	var refusal *compute.Error
	if own && c.Disabled == nil {
		if refusal = s.access.admit(c.Actor); refusal == nil {
			refusal = s.access.admitUnlimited(c.Actor) // A password would bypass the key's ceiling.
		}
	} else {
		refusal = s.access.admitOperator(c.Actor)
	}
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.users.Get(c.User)
	switch {
	case !ok || !known.DeletedAt.IsZero():
		return refuse(compute.CodeNotFound, "user_not_found", "there is no such user")
	case !stillHas(known, c.Checked):
		return refuseWrongPassword()
	case own && c.Disabled != nil && *c.Disabled:
		return refuse(compute.CodeConflict, "own_account",
			"you cannot disable your own account: another operator, or the root token, can")
	}
	u := *known
	if c.Password != "" {
		u.PasswordHash, u.Temporary = c.Password, c.Temporary
	}
	if c.Disabled != nil {
		u.Active = !*c.Disabled
		for _, m := range s.view.Memberships(u.ID) {
			if !u.Active {
				s.dropInvites(m.Org, u.ID)
			}
		}
	}
	s.view.putUser(&u)
	if c.Password != "" || !u.Active {
		s.endLogins(u.ID, c.Keep)
	}
	return command.Result{ID: u.ID.UUID}
}

// stillHas reports whether a user has the password that was checked; always if checked is
// zero.
func stillHas(u *compute.User, checked compute.Hash) bool {
	return checked == (compute.Hash{}) || checked == command.PasswordDigest(u)
}

// refuseWrongPassword refuses what the password before the current one confirmed.
func refuseWrongPassword() command.Result {
	return refuse(compute.CodeForbidden, "wrong_password", "The password is wrong: it was changed meanwhile.")
}

// deleteUser ends the account of the actor. The e-mail address is free from then on.
func (s *identity) deleteUser(c command.DeleteUser) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.users.Get(c.Actor.User)
	if !ok {
		return refuse(compute.CodeNotFound, "user_not_found", "there is no such user")
	}
	if !stillHas(known, c.Checked) {
		return refuseWrongPassword()
	}
	joined := s.view.Memberships(known.ID)
	for _, m := range joined {
		org, _ := s.view.orgs.Get(m.Org)
		if alone := len(s.view.Members(m.Org)) == 1; !alone && s.lastOwner(m) {
			return refuse(compute.CodeConflict, "last_owner",
				"you are the only owner of %s: make somebody else an owner first, or delete it", org.Slug)
		} else if live := s.countLive(m.Org); alone && live > 0 {
			return refuseOrgInUse(org.Slug, live)
		}
	}
	for _, m := range joined {
		if len(s.view.Members(m.Org)) == 1 {
			s.endOrg(m.Org)
		} else {
			s.leave(m)
		}
	}
	s.money.dropBudgetsOf(known.ID)
	s.endLogins(known.ID, compute.UUID{})
	s.view.putUser(&compute.User{
		ID: known.ID, Email: "deleted " + known.ID.String(), CreatedAt: known.CreatedAt, DeletedAt: s.view.meta.Now,
	})
	return command.Result{ID: known.ID.UUID}
}

// endLogins revokes the refresh tokens of a user, which ends the access tokens of
// the same logins, except those of the family keep.
func (s *identity) endLogins(user compute.UserID, keep compute.UUID) {
	var ended []compute.UUID
	for k := range s.view.logins.Keys(family{id: user.UUID}) {
		if k.id != user.UUID {
			break
		}
		if t, ok := s.view.Refresh(k.token); ok && t.Family != keep {
			ended = append(ended, t.Family)
		}
	}
	for _, id := range ended {
		s.revokeFamily(id)
	}
}

// setMember changes the role of a member, or adds one.
func (s *identity) setMember(c command.SetMember) command.Result {
	if refusal := s.access.admitMembers(c.Actor, c.Org, compute.ActSetRole); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	org, orgKnown := s.view.orgs.Get(c.Org)
	user, userKnown := s.view.users.Get(c.User)
	known, member := s.view.Membership(c.Org, c.User)
	if !member && s.access.admitOperator(c.Actor) != nil {
		return refuseMember()
	}
	switch {
	case !orgKnown || !userKnown || !org.DeletedAt.IsZero() || !user.DeletedAt.IsZero():
		return refuse(compute.CodeNotFound, "user_not_found", "there is no such user or organization")
	case c.Role > compute.OrgOwner:
		return refuse(compute.CodeInvalid, "role", "there is no such role")
	case member && c.Role < compute.OrgOwner && s.lastOwner(known):
		return refuseLastOwner()
	}
	m := compute.Membership{
		Org: c.Org, User: c.User, Default: len(s.view.Memberships(c.User)) == 0, JoinedAt: s.view.meta.Now,
	}
	if member {
		m = *known
	}
	if member && c.Role < known.Role {
		s.dropInvites(c.Org, c.User) // The user may no longer invite with the earlier role.
	}
	m.Role = c.Role
	s.view.putMembership(&m)
	return command.Result{ID: c.User.UUID}
}

// removeMember ends a membership. Another one of the user becomes the default.
func (s *identity) removeMember(c command.RemoveMember) command.Result {
	known, member := s.view.Membership(c.Org, c.User)
	act := compute.ActUse // Leave.
	if c.Actor.Root || c.Actor.User != c.User {
		act = compute.ActRemoveMember
		if member {
			act = compute.ActOfRemoval(known.Role)
		}
	}
	if refusal := s.access.admitMembers(c.Actor, c.Org, act); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	switch {
	case !member:
		return refuseMember()
	case s.lastOwner(known):
		return refuseLastOwner()
	}
	s.leave(known)
	return command.Result{ID: c.User.UUID}
}

// leave ends a membership, with the member's keys, variables and invites. Another
// membership of the user becomes the default. The member's budget stays: leaving and
// returning would lift it otherwise.
func (s *identity) leave(m *compute.Membership) {
	for _, k := range s.view.Keys(m.Org) {
		if k.User == m.User {
			s.dropKey(k.ID)
		}
	}
	s.dropVariables(m.Org, m.User)
	s.dropInvites(m.Org, m.User)
	s.view.dropMembership(m.Org, m.User)
	if left := s.view.Memberships(m.User); m.Default && len(left) > 0 {
		first := *left[0]
		first.Default = true
		s.view.putMembership(&first)
	}
}

// lastOwner reports whether m is the only owner of its organization.
func (s *identity) lastOwner(m *compute.Membership) bool {
	if m.Role != compute.OrgOwner {
		return false
	}
	for _, other := range s.view.Members(m.Org) {
		if other.Role == compute.OrgOwner && other.User != m.User {
			return false
		}
	}
	return true
}

func refuseMember() command.Result {
	return refuse(compute.CodeNotFound, "member_not_found", "there is no such member")
}

func refuseLastOwner() command.Result {
	return refuse(compute.CodeConflict, "last_owner",
		"an organization keeps at least one owner: make somebody else an owner first")
}
