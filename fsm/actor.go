package fsm

import (
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// admit refuses an actor whose credential no longer holds: revocation counts
// from the entry on that carries it.
func (s *access) admit(a command.Actor) *compute.Error {
	if a.Root {
		if a.TokenVersion != s.view.meta.RootVersion {
			return unauthenticated("root_token_rotated", "the root token was rotated")
		}
		return nil
	}
	u, ok := s.view.users.Get(a.User)
	if !ok || !u.Active {
		return unauthenticated("user_inactive", "the user is not active")
	}
	if !a.Key.IsZero() {
		if refusal := s.admitKey(a); refusal != nil {
			return refusal
		}
	} else if a.TokenVersion != u.TokenVersion {
		return unauthenticated("token_revoked", "the access token was revoked")
	}
	if _, member := s.view.Membership(a.Org, a.User); !member && !a.Org.IsZero() {
		return compute.Errorf(compute.CodeForbidden,
			"you are not a member of this organization").Named("not_a_member")
	}
	return nil
}

func (s *access) admitKey(a command.Actor) *compute.Error {
	k, ok := s.view.keys.Get(a.Key)
	switch {
	case !ok || k.Org != a.Org || k.User != a.User:
		return unauthenticated("key_unknown", "the API key does not exist")
	case !k.Active:
		return unauthenticated("key_inactive", "the API key is not active")
	case !k.ExpiresAt.IsZero() && k.ExpiresAt <= s.view.meta.Now:
		return unauthenticated("key_expired", "the API key has expired")
	}
	return nil
}

func unauthenticated(detail, message string) *compute.Error {
	return (&compute.Error{Code: compute.CodeUnauthenticated, Message: message}).Named(detail)
}

// admitOperator refuses an actor that may not change the cluster.
func (s *access) admitOperator(a command.Actor) *compute.Error {
	if refusal := s.admit(a); refusal != nil || a.Root {
		return refusal
	}
	if u, _ := s.view.users.Get(a.User); !u.Operator {
		return compute.Errorf(compute.CodeForbidden,
			"only an operator may do this").Named("not_an_operator")
	}
	return s.admitUnlimited(a)
}

// admitPerson refuses the key of an organization where a person joins or makes another
// one: its holder acts for its maker in that organization alone.
func (s *access) admitPerson(a command.Actor) *compute.Error {
	if refusal := s.admit(a); refusal != nil {
		return refusal
	}
	if k, ok := s.view.keys.Get(a.Key); ok && !k.Personal && s.view.Format() >= format.Accounts {
		return compute.Errorf(compute.CodeForbidden,
			"an organization's API key acts in that organization alone: sign in, or use a key of your own").Named("key_of_org")
	}
	return nil
}

// admitUnlimited refuses an actor whose API key has a ceiling where the change could
// give somebody else credits to spend: another key, a member or a higher ceiling.
func (s *access) admitUnlimited(a command.Actor) *compute.Error {
	if b, ok := s.view.budgets.Get(spender{org: a.Org, key: a.Key}); ok && !a.Key.IsZero() && b.Enforce {
		return compute.Errorf(compute.CodeForbidden,
			"an API key with a ceiling manages no keys, members or budgets: sign in").Named("key_limited")
	}
	return nil
}

// admitRole refuses an actor with less than role in the organization that it acts in.
func (s *access) admitRole(a command.Actor, role compute.OrgRole) *compute.Error {
	if refusal := s.admit(a); refusal != nil {
		return refusal
	}
	m, member := s.view.Membership(a.Org, a.User)
	if a.Root || member && m.Role >= role {
		return nil
	}
	return compute.Errorf(compute.CodeForbidden,
		"this needs the role %s in the organization", role).Named("role_too_low")
}

// admitMembers refuses an actor that may not do act to the members of an organization.
// Operators may in every one, others by their role in their own.
func (s *access) admitMembers(a command.Actor, org compute.OrgID, act compute.OrgAct) *compute.Error {
	if a.Root || a.Org != org {
		return s.admitOperator(a)
	}
	refusal := s.admitRole(a, compute.RoleFor(act))
	switch {
	case refusal != nil && s.admitOperator(a) == nil:
		return nil
	case refusal == nil && act != compute.ActUse:
		return s.admitUnlimited(a)
	}
	return refusal
}
