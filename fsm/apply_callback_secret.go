package fsm

import (
	"fmt"

	"berth/compute"
	"berth/fsm/command"
)

// setCallbackSecret gives an organization a new secret for its callbacks. The one before
// signs them too for a day.
func (s *identity) setCallbackSecret(c command.SetCallbackSecret) command.Result {
	if refusal := s.access.admitMembers(c.Actor, c.Org, compute.ActManageKeys); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.orgs.Get(c.Org)
	if !ok || !known.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	o := *known
	last := uint64(0)
	if n := len(o.Signing); n > 0 {
		last = o.Signing[n-1].Number
	}
	key, sealedBy := s.view.DataKey(c.Org), uint64(1)
	if key != nil {
		sealedBy = key.Number
	}
	switch {
	case len(c.Secret.Sealed) == 0 || len(c.Secret.Sealed) > maxSealedSecret:
		return refuse(compute.CodeInvalid, "secret", "a secret is sealed and short")
	case (key == nil) != (c.Key != nil) || c.Secret.Key != sealedBy || c.Secret.Number != last+1:
		return refuse(compute.CodeConflict, "data_key_changed", "another secret was set at the same time: try again")
	}
	if key == nil {
		if refusal := s.view.admitSealed(c.Key.Sealed); refusal != nil {
			return command.Result{Refusal: refusal}
		}
		first := *c.Key
		first.Org, first.Number, first.CreatedAt = c.Org, 1, s.view.meta.Now
		s.view.dataKeys.Put(&first)
	}
	secret := c.Secret
	secret.CreatedAt, secret.EndsAt = s.view.meta.Now, 0
	signing := make([]compute.CallbackSecret, 0, maxCallbackSecrets)
	if n := len(o.Signing); n > 0 {
		before := o.Signing[n-1]
		before.EndsAt = s.view.meta.Now.Add(compute.CallbackSecretOverlap)
		signing = append(signing, before)
	}
	o.Signing = append(signing, secret)
	s.view.putOrg(&o)
	return command.Result{Count: int(secret.Number)}
}

const (
	maxCallbackSecrets = 2   // The newest one, and for a day the one before.
	maxSealedSecret    = 512 // Bytes.
)

// removeCallbackSecret removes the secrets of an organization: its callbacks are not
// signed from then on.
func (s *identity) removeCallbackSecret(c command.RemoveCallbackSecret) command.Result {
	if refusal := s.access.admitMembers(c.Actor, c.Org, compute.ActManageKeys); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.orgs.Get(c.Org)
	if !ok || !known.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	o := *known
	o.Signing = nil
	s.view.putOrg(&o)
	return command.Result{Count: len(known.Signing)}
}

// checkSigning checks that an organization has at most two secrets for its callbacks, of
// which only the newest has no end, and the key that opens them.
func (v checker) checkSigning(o *compute.Org) error {
	for i, s := range o.Signing {
		newest := i == len(o.Signing)-1
		if newest != s.EndsAt.IsZero() || len(s.Sealed) == 0 || s.Number == 0 {
			return fmt.Errorf("secret %d for the callbacks of %s is damaged", s.Number, o.Slug)
		}
	}
	if n := len(o.Signing); n > maxCallbackSecrets || n > 0 && (v.view.DataKey(o.ID) == nil || !o.DeletedAt.IsZero()) {
		return fmt.Errorf("organization %s has %d secrets for its callbacks", o.Slug, n)
	}
	return nil
}
