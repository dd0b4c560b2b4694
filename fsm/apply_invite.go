package fsm

import (
	"cmp"
	"iter"
	"slices"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// inviteTables has the invites to organizations.
type inviteTables struct {
	invites store.Records[pair, compute.Invite] // By organization, invite.
}

func newInviteTables() inviteTables {
	key := func(i *compute.Invite) pair { return pair{i.Org.UUID, i.ID.UUID} }
	return inviteTables{invites: store.NewRecords(byPair, key)}
}

// Invite returns an invite to an organization.
func (v *inviteTables) Invite(org compute.OrgID, id compute.InviteID) (*compute.Invite, bool) {
	return v.invites.Get(pair{org.UUID, id.UUID})
}

// Invites returns the invites to an organization, the oldest first.
func (v *inviteTables) Invites(org compute.OrgID) []*compute.Invite {
	var out []*compute.Invite
	for k, i := range v.invites.From(pair{owner: org.UUID}) {
		if k.owner != org.UUID {
			break
		}
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b *compute.Invite) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return out
}

// InvitesFor yields the invites that can be answered with an e-mail address.
func (v *View) InvitesFor(email string) iter.Seq[*compute.Invite] {
	return func(yield func(*compute.Invite) bool) {
		for i := range v.invites.Values() {
			if i.Email == email && i.Open(v.Now()) && !yield(i) {
				return
			}
		}
	}
}

// putInvite invites a person, in place of an earlier invite to the same address.
func (s *identity) putInvite(c command.PutInvite) command.Result {
	act := compute.ActInvite
	if c.Invite.Role == compute.OrgOwner {
		act = compute.ActSetRole
	}
	invite := c.Invite
	if refusal := s.access.admitMembers(c.Actor, invite.Org, act); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.checkInvite(&invite); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	kept := 0
	for _, old := range s.view.Invites(invite.Org) {
		if old.Email == invite.Email && old.Status == compute.InvitePending || s.view.meta.Now >= old.ExpiresAt {
			s.view.invites.Drop(pair{old.Org.UUID, old.ID.UUID})
			continue
		}
		kept++
	}
	if kept >= compute.MaxInvites {
		return refuse(compute.CodeConflict, "too_many_invites",
			"an organization has at most %d invites a week: revoke some", compute.MaxInvites)
	}
	invite.Status, invite.By, invite.User = compute.InvitePending, c.Actor.User, compute.UserID{}
	invite.CreatedAt, invite.ExpiresAt = s.view.meta.Now, s.view.meta.Now.Add(compute.InviteTTL)
	s.view.invites.Put(&invite)
	return command.Result{ID: invite.ID.UUID}
}

// checkInvite refuses an invite that nobody could accept.
func (s *identity) checkInvite(i *compute.Invite) *compute.Error {
	o, known := s.view.orgs.Get(i.Org)
	_, again := s.view.Invite(i.Org, i.ID)
	switch {
	case !known || !o.DeletedAt.IsZero():
		return compute.Errorf(compute.CodeNotFound, "there is no such organization").Named("not_found")
	case i.ID.IsZero() || again || i.Email == "" || i.Hash == (compute.Hash{}) || i.Role > compute.OrgOwner:
		return compute.Errorf(compute.CodeInvalid, "an invite needs an e-mail address, a role and a token").Named("invite")
	}
	if u, ok := s.view.UserByEmail(i.Email); ok {
		if _, member := s.view.Membership(i.Org, u.ID); member {
			return compute.Errorf(compute.CodeConflict, "%s is a member already", i.Email).Named("already_member")
		}
	}
	return nil
}

// revokeInvite removes an invite. Its token opens nothing from then on.
func (s *identity) revokeInvite(c command.RevokeInvite) command.Result {
	if refusal := s.access.admitMembers(c.Actor, c.Org, compute.ActInvite); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if s.view.invites.Drop(pair{c.Org.UUID, c.Invite.UUID}) == nil {
		return refuseInvite()
	}
	return command.Result{ID: c.Invite.UUID}
}

// answerInvite makes the user of the actor a member, or declines. The same answer may
// be repeated.
func (s *identity) answerInvite(c command.AnswerInvite) command.Result {
	if refusal := s.access.admitPerson(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.Invite(c.Org, c.Invite)
	u, person := s.view.users.Get(c.Actor.User)
	if !ok || !person || known.Hash != c.Hash {
		return refuseInvite()
	}
	status := compute.InviteDeclined
	if c.Accept {
		status = compute.InviteAccepted
	}
	_, member := s.view.Membership(c.Org, u.ID)
	switch {
	case known.Email != u.Email:
		return refuse(compute.CodeForbidden, "invite_for_another",
			"the invite is for another e-mail address: sign in with the account that has it")
	case known.Status == status && known.User == u.ID && (member || !c.Accept):
		return command.Result{ID: c.Invite.UUID, Repeat: true}
	case !known.Open(s.view.meta.Now):
		return refuse(compute.CodeConflict, "invite_ended", "the invite was answered, or has expired: ask for another")
	case c.Accept && member:
		return refuse(compute.CodeConflict, "already_member", "you are a member already")
	}
	invite := *known
	invite.Status, invite.User = status, u.ID
	s.view.invites.Put(&invite)
	if c.Accept {
		s.view.putMembership(&compute.Membership{
			Org: c.Org, User: u.ID, Role: invite.Role, Default: len(s.view.Memberships(u.ID)) == 0, JoinedAt: s.view.meta.Now,
		})
	}
	return command.Result{ID: c.Invite.UUID}
}

// dropInvites removes the invites to an organization that can be answered: those of
// one member, or all with a zero user.
func (s *identity) dropInvites(org compute.OrgID, by compute.UserID) {
	for _, i := range s.view.Invites(org) {
		if by.IsZero() || i.By == by && i.Status == compute.InvitePending {
			s.view.invites.Drop(pair{i.Org.UUID, i.ID.UUID})
		}
	}
}

func refuseInvite() command.Result {
	return refuse(compute.CodeNotFound, "not_found", "No such invite.")
}
