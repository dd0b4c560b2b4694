package fsm

import (
	"cmp"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxSubject bounds the subject of a user at the identity provider, in bytes.
const maxSubject = 512

// signUp records a user that made its own account. The node that was asked has checked
// that the operator's settings allow it.
func (s *identity) signUp(c command.SignUp) command.Result {
	u := c.User
	_, taken := s.view.subjects.Get(u.Subject)
	switch {
	case len(u.Subject) > maxSubject:
		return refuse(compute.CodeInvalid, "subject", "a subject has at most %d bytes", maxSubject)
	case u.Subject != "" && taken:
		return refuse(compute.CodeConflict, "subject_taken", "this person has an account")
	case u.Subject == "" && u.PasswordHash == "" && u.Email == "":
		return refuse(compute.CodeInvalid, "user", "a user needs an e-mail address")
	}
	u.Operator, u.Temporary, u.OrgsMade, u.TokenVersion, u.DeletedAt = false, false, 0, 0, 0
	u.Unproven = s.view.Format() >= format.Rotation && u.Subject == ""
	o := c.Org
	o.Trusted, o.DeletedAt, o.Signing = false, 0, nil
	return s.newUser(command.CreateUser{User: u, Org: o, Join: c.Join, Role: compute.OrgMember})
}

// linkUser records the subject of a user at the identity provider. A user that nobody
// has proved to have the address loses every other way into the account: somebody else
// may have made it, to share it with whom the address belongs to.
func (s *identity) linkUser(c command.LinkUser) command.Result {
	known, ok := s.view.users.Get(c.User)
	holder, taken := s.view.subjects.Get(c.Subject)
	switch {
	case !ok || !known.DeletedAt.IsZero():
		return refuse(compute.CodeNotFound, "user_not_found", "there is no such user")
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return refuse(compute.CodeInvalid, "subject", "a subject has 1 to %d bytes", maxSubject)
	case known.Subject == c.Subject:
		return s.renameUser(known, &c)
	case taken && holder != c.User || known.Subject != "":
		return refuse(compute.CodeConflict, "subject_taken",
			"an account here with this address belongs to another person of the identity provider")
	}
	u := *known
	u.Subject = c.Subject
	if u.Unproven {
		u.PasswordHash, u.Temporary, u.Unproven = "", false, false
		u.TokenVersion++ // Changes that its maker has begun are refused.
		s.dropAccess(u.ID)
	}
	s.view.putUser(&u)
	return command.Result{ID: c.User.UUID}
}

// renameUser records the address and the name of a user as the identity provider has them.
func (s *identity) renameUser(known *compute.User, c *command.LinkUser) command.Result {
	u := *known
	u.Email, u.FullName = cmp.Or(c.Email, u.Email), cmp.Or(c.FullName, u.FullName)
	if u == *known {
		return command.Result{Repeat: true, ID: u.ID.UUID}
	}
	if holder, taken := s.view.emails.Get(u.Email); taken && holder != u.ID {
		return refuse(compute.CodeConflict, "email_taken", "the e-mail address is taken")
	}
	s.view.putUser(&u)
	return command.Result{ID: u.ID.UUID}
}

// dropAccess ends all logins of a user, and removes the user's keys, variables and
// invites.
func (s *identity) dropAccess(user compute.UserID) {
	s.endLogins(user, compute.UUID{})
	for _, m := range s.view.Memberships(user) {
		for _, k := range s.view.Keys(m.Org) {
			if k.User == user {
				s.dropKey(k.ID)
			}
		}
		s.dropVariables(m.Org, user)
		s.dropInvites(m.Org, user)
	}
}

// markUnproven marks the users that signed up with a password before the state recorded
// it, as far as the cluster's audit trail still lists them.
func (s *identity) markUnproven() {
	for line := range s.view.Audit(compute.OrgID{}, 0) {
		if line.Action != actionSignUp {
			continue
		}
		known, ok := s.view.users.Get(line.User)
		if !ok || known.Subject != "" || known.PasswordHash == "" || !known.DeletedAt.IsZero() {
			continue
		}
		u := *known
		u.Unproven = true
		s.view.putUser(&u)
	}
}
