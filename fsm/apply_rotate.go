package fsm

import "berth/compute"

// rotateKey adds a data key of an organization, replaces secrets that earlier keys have
// sealed, or retires earlier keys.
func (s *identity) rotateKey(c RotateKey) Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	known := s.DataKey(c.Org)
	if known == nil {
		return refuse(compute.CodeNotFound, "no_data_key", "the organization has no secrets")
	}
	switch {
	case c.Key == nil:
		return Result{Count: s.reseal(&c, known)}
	case len(c.Key.Sealed) == 0 || len(c.Key.Sealed) > maxSealedKey:
		return refuse(compute.CodeInvalid, "data_key", "a data key is sealed and short")
	case c.Retire && c.Key.Number == known.Number:
		if n := s.SealedBefore(c.Org, known.Number); n > 0 {
			return refuse(compute.CodeConflict, "data_key_in_use", "%d secrets are still sealed with earlier keys", n)
		}
	case c.Retire || c.Key.Number != known.Number+1:
		return refuse(compute.CodeConflict, "data_key_changed", "the organization has another data key: try again")
	}
	if refusal := s.admitSealed(c.Key.Sealed); refusal != nil {
		return Result{Refusal: refusal}
	}
	key := *known
	key.Sealed, key.Number = c.Key.Sealed, c.Key.Number
	s.dataKeys.Put(&key)
	return Result{Count: int(key.Number)}
}

// maxSealedKey bounds a sealed data key, with those before it.
const maxSealedKey = 64 << 10 // Bytes.

// reseal replaces values that earlier keys have sealed. One that was changed meanwhile
// stays. It returns how many it replaced.
func (s *identity) reseal(c *RotateKey, key *compute.DataKey) int {
	n := 0
	for i := range c.Variables {
		fresh := &c.Variables[i]
		known, ok := s.variables.Get(variableKey{c.Org.UUID, fresh.User.UUID, fresh.Name})
		if !ok || !known.Secret || known.Key >= key.Number || known.UpdatedAt != fresh.UpdatedAt ||
			fresh.Key != key.Number || len(fresh.Sealed) == 0 {
			continue
		}
		v := *known
		v.Sealed, v.Key = fresh.Sealed, fresh.Key
		s.variables.Put(&v)
		n++
	}
	org, _ := s.orgs.Get(c.Org)
	o := *org
	o.Signing = append([]compute.CallbackSecret(nil), org.Signing...)
	for i := range o.Signing {
		for _, fresh := range c.Signing {
			at := &o.Signing[i]
			newer := at.Key < key.Number && fresh.Key == key.Number
			if at.Number == fresh.Number && newer && len(fresh.Sealed) > 0 {
				at.Sealed, at.Key = fresh.Sealed, fresh.Key
				n++
			}
		}
	}
	if len(c.Signing) > 0 {
		s.putOrg(&o)
	}
	return n
}

// SecretsOf yields the secrets of all members of an organization.
func (v *View) SecretsOf(org compute.OrgID) (out []*compute.Variable) {
	for k, variable := range v.variables.From(variableKey{org: org.UUID}) {
		if k.org != org.UUID {
			break
		}
		if variable.Secret {
			out = append(out, variable)
		}
	}
	return out
}

// SealedBefore returns how many secrets of an organization are sealed with a data key
// before the one with a number: variables, callback secrets, and credentials of live
// executions, which go with those.
func (v *View) SealedBefore(org compute.OrgID, number uint64) int {
	n := 0
	for _, variable := range v.SecretsOf(org) {
		if variable.Key < number {
			n++
		}
	}
	if o, ok := v.orgs.Get(org); ok {
		for _, s := range o.Signing {
			if s.Key < number {
				n++
			}
		}
	}
	for e := range v.Live(org) {
		if e.Container != nil && len(e.Container.Credentials) > 0 && e.Container.Key < number {
			n++
		}
	}
	return n
}
