package fsm

import (
	"slices"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm/command"
	"berth/fsm/format"
)

// retiredKeys is how long a signing key that was replaced still verifies: far
// longer than any access token lives.
const retiredKeys = 24 * time.Hour

func (s *identity) createKey(c command.CreateKey) command.Result {
	if refusal := s.admitKeyOwner(c.Actor, &c.Key); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known := s.view.keys.Has(c.Key.ID)
	known = known || s.view.budgets.Has(spender{org: c.Actor.Org, key: c.Key.ID}) // It was deleted, and its work goes on.
	_, taken := s.view.lookups.Get(c.Key.Lookup)
	limit := s.view.meta.Settings.Keys
	switch {
	case c.Key.ID.IsZero() || c.Key.Lookup == "":
		return refuse(compute.CodeInvalid, "key", "a key needs an identifier and a lookup")
	case known || taken:
		return refuse(compute.CodeConflict, "key_exists", "the key exists")
	case !c.Key.ExpiresAt.IsZero() && c.Key.ExpiresAt <= s.view.meta.Now:
		return refuse(compute.CodeInvalid, "key_expired", "expires_at is in the past")
	case c.MaxCredits < 0 || c.MaxCredits > maxAmount:
		return refuse(compute.CodeInvalid, "max_credits", "max_credits is not negative, and at most %s", maxAmount)
	case limit > 0 && len(s.view.Keys(c.Actor.Org)) >= limit:
		return refuse(compute.CodeForbidden, "too_many_keys",
			"the organization has %d API keys, which is the limit", limit)
	}
	if refusal := s.admitRights(c.Actor, &c.Key); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.access.admitUnlimited(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	k := c.Key
	k.Org, k.Active, k.LastUsedAt = c.Actor.Org, true, 0
	if !c.Actor.Root {
		k.User = c.Actor.User
	}
	if _, member := s.view.Membership(k.Org, k.User); !member {
		return refuse(compute.CodeInvalid, "not_a_member", "a key acts as a member of its organization")
	}
	k.CreatedAt, k.UpdatedAt = s.view.meta.Now, s.view.meta.Now
	s.view.putKey(&k)
	if c.MaxCredits > 0 {
		s.money.putBudget(&compute.Budget{Org: k.Org, Key: k.ID, MaxCredits: c.MaxCredits, Enforce: true})
	}
	if fault.Planted(fault.PoisonKey) && k.Name == "poison" {
		panic("the key has the name that was planted") // Half of the entry is in the state.
	}
	return command.Result{ID: k.ID.UUID}
}

// admitRights refuses an actor that would get a key with more rights than the one that
// it uses now, or one that outlives it.
func (s *identity) admitRights(a command.Actor, wanted *compute.Key) *compute.Error {
	for _, scope := range wanted.Scopes {
		if !slices.Contains(compute.Scopes(), scope) {
			return compute.Errorf(compute.CodeInvalid, "there is no scope %.64q", string(scope)).Named("scope")
		}
	}
	maker, ok := s.view.keys.Get(a.Key)
	switch {
	case a.Key.IsZero() || !ok:
		return nil
	case !compute.Within(wanted.Scopes, maker.Scopes):
		return compute.Errorf(compute.CodeForbidden,
			"an API key makes no key that may do more than itself: give it some of its scopes, or sign in").
			Named("scope_missing")
	case s.view.Format() >= format.Rotation && livesLonger(wanted.ExpiresAt, maker.ExpiresAt):
		return compute.Errorf(compute.CodeForbidden,
			"this API key expires at %s, and makes no key that outlives it: give it an expires_at until then, or sign in",
			maker.ExpiresAt).Named("key_outlives")
	}
	return nil
}

// livesLonger reports whether a key that expires at an instant, or never, outlives another.
func livesLonger(key, other compute.Instant) bool {
	return !other.IsZero() && (key.IsZero() || key > other)
}

// admitKeyOwner refuses an actor that may not manage k: a personal key is its user's,
// the others are the admins'.
func (s *identity) admitKeyOwner(a command.Actor, k *compute.Key) *compute.Error {
	if k.Personal && k.User == a.User {
		return s.access.admitRole(a, compute.OrgMember)
	}
	return s.access.admitRole(a, compute.OrgAdmin)
}

// managedKey returns a key that the actor may manage.
func (s *identity) managedKey(a command.Actor, id compute.KeyID) (compute.Key, *compute.Error) {
	known, ok := s.view.Key(a.Org, id)
	if !ok {
		if refusal := s.access.admit(a); refusal != nil {
			return compute.Key{}, refusal
		}
		return compute.Key{}, compute.Errorf(compute.CodeNotFound,
			"API key not found").Named("key_not_found")
	}
	if refusal := s.admitKeyOwner(a, known); refusal != nil {
		return compute.Key{}, refusal
	}
	if id != a.Key { // Its own new value has the same ceiling.
		if refusal := s.access.admitUnlimited(a); refusal != nil {
			return compute.Key{}, refusal
		}
	}
	return *known, nil
}

func (s *identity) toggleKey(c command.ToggleKey) command.Result {
	k, refusal := s.managedKey(c.Actor, c.Key)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	k.Active, k.UpdatedAt = !k.Active, s.view.meta.Now
	s.view.putKey(&k)
	r := command.Result{ID: k.ID.UUID}
	if s.view.Format() >= format.Trust {
		shown := k
		shown.Lookup, shown.Hash = "", compute.Hash{}
		r.Key = &shown
	}
	return r
}

func (s *identity) deleteKey(c command.DeleteKey) command.Result {
	k, refusal := s.managedKey(c.Actor, c.Key)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.dropKey(k.ID)
	return command.Result{ID: k.ID.UUID}
}

func (s *identity) regenerateKey(c command.RegenerateKey) command.Result {
	k, refusal := s.managedKey(c.Actor, c.Key)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if _, taken := s.view.lookups.Get(c.Lookup); taken || c.Lookup == "" {
		return refuse(compute.CodeConflict, "key_exists", "the key exists")
	}
	if refusal := s.admitRights(c.Actor, &k); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if s.view.Format() >= format.Lab && !c.Actor.Root && k.User != c.Actor.User {
		if k.Personal {
			return refuse(compute.CodeForbidden, "not_your_key",
				"only its user gives a personal key a new value; an admin may disable or delete it")
		}
		k.User = c.Actor.User // Otherwise the caller could use a member's greater rights.
	}
	k.Lookup, k.Prefix, k.Hash = c.Lookup, c.Prefix, c.Hash
	k.UpdatedAt = s.view.meta.Now
	s.view.putKey(&k)
	return command.Result{ID: k.ID.UUID}
}

// touchKeys records when keys were last used, to the minute.
func (s *identity) touchKeys(c command.TouchKeys) command.Result {
	ids := make([]compute.KeyID, 0, len(c.Used))
	for id := range c.Used { // Sorted below.
		ids = append(ids, id)
	}
	slices.SortFunc(ids, byKey)
	var r command.Result
	for _, id := range ids {
		known, ok := s.view.keys.Get(id)
		at := min(c.Used[id], s.view.meta.Now)
		at -= at % compute.Instant(time.Minute/time.Millisecond)
		if !ok || at <= known.LastUsedAt {
			continue
		}
		k := *known
		k.LastUsedAt = at
		s.view.putKey(&k)
		r.Count++
	}
	return r
}

func (s *identity) addSigningKey(c command.AddSigningKey) command.Result {
	if _, known := s.view.signing.Get(c.Key.ID); known || c.Key.ID == "" {
		return refuse(compute.CodeConflict, "signing_key_exists", "the signing key exists")
	}
	if refusal := s.view.admitSealed(c.Key.Sealed); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.putSigningKey(c.Key)
	return command.Result{}
}

// putSigningKey stores k as the one that signs; the one before it retires.
func (s *identity) putSigningKey(k compute.SigningKey) {
	for _, known := range s.view.SigningKeys() {
		if known.RetiredAt.IsZero() {
			retired := *known
			retired.RetiredAt = max(s.view.meta.Now, 1)
			s.view.signing.Put(&retired)
		}
	}
	k.CreatedAt, k.RetiredAt = s.view.meta.Now, 0
	s.view.signing.Put(&k)
}

// expireSigningKeys forgets keys of which no token is alive.
func (s *identity) expireSigningKeys() {
	for _, k := range s.view.SigningKeys() {
		if !k.RetiredAt.IsZero() && s.view.meta.Now.Sub(k.RetiredAt) > retiredKeys {
			s.view.signing.Drop(k.ID)
		}
	}
}
