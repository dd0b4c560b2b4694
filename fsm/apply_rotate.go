package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// rotateKey adds a data key of an organization, replaces secrets that earlier keys have
// sealed, or retires earlier keys.
func (s *identity) rotateKey(c command.RotateKey) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known := s.view.DataKey(c.Org)
	if known == nil {
		return refuse(compute.CodeNotFound, "no_data_key", "the organization has no secrets")
	}
	switch {
	case c.Key == nil:
		return command.Result{Count: s.reseal(&c, known) + s.resealTexts(&c, known)}
	case len(c.Key.Sealed) == 0 || len(c.Key.Sealed) > maxSealedKey:
		return refuse(compute.CodeInvalid, "data_key", "a data key is sealed and short")
	case c.Retire && c.Key.Number == known.Number:
		if n := s.sealedBefore(c.Org, known.Number); n > 0 {
			return refuse(compute.CodeConflict, "data_key_in_use", "%d secrets are still sealed with earlier keys", n)
		}
	case c.Retire || c.Key.Number != known.Number+1:
		return refuse(compute.CodeConflict, "data_key_changed", "the organization has another data key: try again")
	}
	if refusal := s.view.admitSealed(c.Key.Sealed); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	key := *known
	key.Sealed, key.Number = c.Key.Sealed, c.Key.Number
	s.view.dataKeys.Put(&key)
	return command.Result{Count: int(key.Number)}
}

// maxSealedKey bounds a sealed data key, with those before it.
const maxSealedKey = 64 << 10 // Bytes.

// reseal replaces values that earlier keys have sealed. One that was changed meanwhile
// stays. It returns how many it replaced.
func (s *identity) reseal(c *command.RotateKey, key *compute.DataKey) int {
	n := 0
	for i := range c.Variables {
		fresh := &c.Variables[i]
		known, ok := s.view.variables.Get(variableKey{c.Org.UUID, fresh.User.UUID, fresh.Name})
		if !ok || !known.Secret || known.Key >= key.Number || known.UpdatedAt != fresh.UpdatedAt ||
			fresh.Key != key.Number || len(fresh.Sealed) == 0 {
			continue
		}
		v := *known
		v.Sealed, v.Key = fresh.Sealed, fresh.Key
		s.view.variables.Put(&v)
		n++
	}
	org, _ := s.view.orgs.Get(c.Org)
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
		s.view.putOrg(&o)
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

// SealedText is a text that is sealed for an execution.
type SealedText struct {
	Context string // That it was sealed for.
	Sealed  []byte
}

// secret is a sealed text in a record of an execution, and the number of the data key that
// sealed it.
type secret struct {
	sealed  *[]byte
	key     *uint64
	context string
}

// secretsOf returns the sealed texts of an execution, which can be changed through them:
// credentials for registries, and tokens for hubs of models.
func secretsOf(e *compute.Execution) (all []secret) {
	if c := e.Container; c != nil && len(c.Credentials) > 0 {
		all = append(all, secret{&c.Credentials, &c.Key, c.Context(e.Org, e.SealedFor())})
	}
	models := []*compute.Inference{e.Inference}
	if e.Deployment != nil {
		models = append(models, e.Deployment.Next)
	}
	for _, m := range models {
		if m != nil && len(m.Token) > 0 {
			all = append(all, secret{&m.Token, &m.Key, compute.TokenContext(e.Org, e.SealedFor())})
		}
	}
	return all
}

// copySecrets returns a copy of an execution whose sealed texts can be changed.
func copySecrets(known *compute.Execution) *compute.Execution {
	e := *known
	e.Container, e.Inference, e.Deployment = copied(e.Container), copied(e.Inference), copied(e.Deployment)
	if e.Deployment != nil {
		e.Deployment.Next = copied(e.Deployment.Next)
	}
	return &e
}

// copied returns a copy of what p points at, nil for nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// resealTexts replaces texts of live executions that earlier keys have sealed, wherever they
// still are. It returns how many it replaced.
func (s *identity) resealTexts(c *command.RotateKey, key *compute.DataKey) int {
	fresh := make(map[string][]byte, len(c.Texts))
	for _, text := range c.Texts {
		if text.Key == key.Number && len(text.Sealed) > 0 && len(text.Sealed) <= compute.MaxCredentials {
			fresh[string(text.Before)] = text.Sealed
		}
	}
	if len(fresh) == 0 {
		return 0
	}
	n := 0
	for _, known := range slices.Collect(s.view.Live(c.Org)) {
		e, changed := copySecrets(known), 0
		for _, at := range secretsOf(e) {
			if sealed, ok := fresh[string(*at.sealed)]; ok && *at.key < key.Number {
				*at.sealed, *at.key = sealed, key.Number
				changed++
			}
		}
		if changed > 0 {
			s.execution.putExecution(e)
			n += changed
		}
	}
	return n
}

// TextsBefore returns the texts of live executions of an organization that are sealed with a
// data key before the one with a number, each once.
func (v *View) TextsBefore(org compute.OrgID, number uint64) (all []SealedText) {
	seen := map[string]bool{} // Replicas have those of their service.
	for e := range v.Live(org) {
		for _, at := range secretsOf(e) {
			if *at.key < number && !seen[string(*at.sealed)] {
				seen[string(*at.sealed)] = true
				all = append(all, SealedText{Context: at.context, Sealed: *at.sealed})
			}
		}
	}
	return all
}

// SealedBefore returns how many secrets of an organization are sealed with a data key
// before the one with a number: variables, callback secrets, and texts of live executions.
func (v *View) SealedBefore(org compute.OrgID, number uint64) int {
	return v.storedBefore(org, number) + len(v.TextsBefore(org, number))
}

// sealedBefore is SealedBefore as Apply knows it: states of earlier formats do not count
// tokens of models.
func (s *identity) sealedBefore(org compute.OrgID, number uint64) int {
	if s.view.Format() >= format.Rotation {
		return s.view.SealedBefore(org, number)
	}
	n := s.view.storedBefore(org, number)
	for e := range s.view.Live(org) {
		if e.Container != nil && len(e.Container.Credentials) > 0 && e.Container.Key < number {
			n++
		}
	}
	return n
}

// storedBefore counts the variables and callback secrets of an organization that are sealed
// with a data key before the one with a number.
func (v *View) storedBefore(org compute.OrgID, number uint64) int {
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
	return n
}

// changedKey returns why what the data key with a number sealed cannot be stored: the
// organization has another key, or another first one.
func (s *identity) changedKey(org compute.OrgID, first *compute.DataKey, number uint64) *compute.Error {
	current, key := uint64(1), s.view.DataKey(org)
	if key != nil {
		current = key.Number
	}
	if number == current && (key == nil) == (first != nil) {
		return nil
	}
	return compute.Errorf(compute.CodeConflict, "the organization has another data key: try again").
		Named("data_key_changed")
}
