package fsm

import (
	"cmp"
	"iter"
	"slices"

	"berth/compute"
)

// Org returns the organization id.
func (v *identityTables) Org(id compute.OrgID) (*compute.Org, bool) { return v.orgs.Get(id) }

// OrgBySlug returns the organization with a slug.
func (v *identityTables) OrgBySlug(slug string) (*compute.Org, bool) {
	id, ok := v.slugs.Get(slug)
	if !ok {
		return nil, false
	}
	return v.orgs.Get(id)
}

// Orgs yields the organizations by identifier.
func (v *identityTables) Orgs() iter.Seq[*compute.Org] { return v.orgs.Values() }

// User returns the user id.
func (v *identityTables) User(id compute.UserID) (*compute.User, bool) { return v.users.Get(id) }

// UsersAfter yields the users behind an identifier, in the order of identifiers.
func (v *identityTables) UsersAfter(id compute.UserID) iter.Seq[*compute.User] {
	return func(yield func(*compute.User) bool) {
		for k, u := range v.users.From(id) {
			if k != id && !yield(u) {
				return
			}
		}
	}
}

// UserByEmail returns the user with an e-mail address in lower case.
func (v *identityTables) UserByEmail(email string) (*compute.User, bool) {
	id, ok := v.emails.Get(email)
	if !ok {
		return nil, false
	}
	return v.users.Get(id)
}

// UserBySubject returns the user with a subject at the identity provider.
func (v *identityTables) UserBySubject(subject string) (*compute.User, bool) {
	id, ok := v.subjects.Get(subject)
	if !ok {
		return nil, false
	}
	return v.users.Get(id)
}

// Membership returns a user's membership in an organization.
func (v *identityTables) Membership(org compute.OrgID, user compute.UserID) (*compute.Membership, bool) {
	return v.members.Get(pair{org.UUID, user.UUID})
}

// Memberships returns the memberships of a user.
func (v *identityTables) Memberships(user compute.UserID) []*compute.Membership {
	var out []*compute.Membership
	for k := range v.joined.Keys(pair{owner: user.UUID}) {
		if k.owner != user.UUID {
			break
		}
		m, _ := v.members.Get(pair{k.id, k.owner})
		out = append(out, m)
	}
	return out
}

// Members returns the memberships in an organization.
func (v *identityTables) Members(org compute.OrgID) []*compute.Membership {
	var out []*compute.Membership
	for k, m := range v.members.From(pair{owner: org.UUID}) {
		if k.owner != org.UUID {
			break
		}
		out = append(out, m)
	}
	return out
}

// Key returns an organization's API key.
func (v *identityTables) Key(org compute.OrgID, id compute.KeyID) (*compute.Key, bool) {
	k, ok := v.keys.Get(id)
	if !ok || k.Org != org {
		return nil, false
	}
	return k, true
}

// Keys returns the API keys of an organization by identifier.
func (v *identityTables) Keys(org compute.OrgID) []*compute.Key {
	var out []*compute.Key
	for p := range v.orgKeys.Keys(pair{owner: org.UUID}) {
		if p.owner != org.UUID {
			break
		}
		k, _ := v.keys.Get(compute.KeyID{UUID: p.id})
		out = append(out, k)
	}
	return out
}

// KeyByLookup returns the API key whose text has lookup behind "lk_".
func (v *identityTables) KeyByLookup(lookup string) (*compute.Key, bool) {
	id, ok := v.lookups.Get(lookup)
	if !ok {
		return nil, false
	}
	return v.keys.Get(id)
}

// Refresh returns the refresh token with a hash.
func (v *identityTables) Refresh(hash compute.Hash) (*compute.RefreshToken, bool) {
	t, ok := v.refresh.Get(hash)
	if !ok {
		return nil, false
	}
	return &t.Token, true
}

// Session reports whether the login with a family of refresh tokens goes on,
// and whether it is known at all. It ends when the family is revoked, which
// revokes all of its tokens, and is forgotten once they have expired.
func (v *identityTables) Session(id compute.UUID) (live, known bool) {
	first, ok := v.families.Next(family{id: id})
	if !ok || first.id != id {
		return false, false
	}
	t, ok := v.Refresh(first.token)
	return ok && !t.Revoked, true
}

// LoginAt returns when a login began. It reports false for one that is unknown or has ended.
func (v *identityTables) LoginAt(id compute.UUID) (begun compute.Instant, ok bool) {
	if live, _ := v.Session(id); !live {
		return 0, false
	}
	for k := range v.families.Keys(family{id: id}) {
		if k.id != id {
			break
		}
		if t, known := v.Refresh(k.token); known && (!ok || t.CreatedAt < begun) {
			begun, ok = t.CreatedAt, true
		}
	}
	return begun, ok
}

// SigningKeys returns the keys that sign access tokens, the newest first. Only
// the newest signs; the others still verify.
func (v *identityTables) SigningKeys() []*compute.SigningKey {
	out := slices.Collect(v.signing.Values())
	slices.SortStableFunc(out, func(a, b *compute.SigningKey) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.RetiredAt, b.RetiredAt))
	})
	return out
}

// Account returns an organization's account, or one without credits if it has
// never had any.
func (v *moneyTables) Account(org compute.OrgID) *compute.Account {
	if a, ok := v.accounts.Get(org); ok {
		return a
	}
	return &compute.Account{Org: org}
}

// Ledger yields the ledger of an organization behind sequence number after.
func (v *moneyTables) Ledger(org compute.OrgID, after uint64) iter.Seq[*compute.LedgerEntry] {
	return v.ledger.Entries(org, after+1)
}
