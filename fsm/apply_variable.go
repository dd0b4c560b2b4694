package fsm

import (
	"cmp"
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// variableKey is where a variable is among all.
type variableKey struct {
	org, user compute.UUID
	name      string
}

func byVariable(a, b variableKey) int {
	return cmp.Or(byUUID(a.org, b.org), byUUID(a.user, b.user), strings.Compare(a.name, b.name))
}

func variableKeyOf(v *compute.Variable) variableKey {
	return variableKey{v.Org.UUID, v.User.UUID, v.Name}
}

// variableTables has the variables of users, and the keys of their secrets.
type variableTables struct {
	variables store.Records[variableKey, compute.Variable]
	dataKeys  store.Records[compute.OrgID, compute.DataKey]
}

func newVariableTables() variableTables {
	return variableTables{
		variables: store.NewRecords(byVariable, variableKeyOf),
		dataKeys:  store.NewRecords(byOrg, func(k *compute.DataKey) compute.OrgID { return k.Org }),
	}
}

// Variables returns the variables of a user in an organization by name.
func (v *variableTables) Variables(org compute.OrgID, user compute.UserID) []*compute.Variable {
	var out []*compute.Variable
	for k := range v.variables.From(variableKey{org: org.UUID, user: user.UUID}) {
		if k.org != org.UUID || k.user != user.UUID {
			break
		}
		if variable, ok := v.variables.Get(k); ok {
			out = append(out, variable)
		}
	}
	return out
}

// DataKey returns the key of an organization's secrets, nil before the first secret.
func (v *variableTables) DataKey(org compute.OrgID) *compute.DataKey {
	k, _ := v.dataKeys.Get(org)
	return k
}

// putVariables stores variables of the actor, in place of those with their names.
func (s *identity) putVariables(c command.PutVariables) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.checkVariables(&c); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Key != nil {
		if refusal := s.view.admitSealed(c.Key.Sealed); refusal != nil {
			return command.Result{Refusal: refusal}
		}
		s.firstDataKey(c.Actor.Org, *c.Key)
	}
	for i := range c.Variables {
		variable := c.Variables[i]
		variable.Org, variable.User = c.Actor.Org, c.Actor.User
		variable.CreatedAt, variable.UpdatedAt = s.view.meta.Now, s.view.meta.Now
		if known, ok := s.view.variables.Get(variableKeyOf(&variable)); ok {
			variable.ID, variable.CreatedAt = known.ID, known.CreatedAt
		}
		s.view.variables.Put(&variable)
	}
	return command.Result{Count: len(c.Variables)}
}

// firstDataKey stores the first data key of an organization, unless it has one.
func (s *identity) firstDataKey(org compute.OrgID, key compute.DataKey) {
	if s.view.DataKey(org) != nil {
		return
	}
	key.Org, key.Number, key.CreatedAt = org, 1, s.view.meta.Now
	s.view.dataKeys.Put(&key)
}

// checkVariables refuses variables that cannot be stored. A command stores all of its
// variables or none.
func (s *identity) checkVariables(c *command.PutVariables) *compute.Error {
	added := 0
	names := make(map[string]bool, len(c.Variables))
	for i := range c.Variables {
		variable := &c.Variables[i]
		if bad := compute.BadVariable(variable.Name, variable.Value); bad != "" || names[variable.Name] ||
			variable.Secret != (len(variable.Sealed) > 0) || variable.Secret && variable.Value != "" {
			return compute.Errorf(compute.CodeInvalid, "the variable %.200q is not well formed", variable.Name)
		}
		names[variable.Name] = true
		if !s.view.variables.Has(variableKey{c.Actor.Org.UUID, c.Actor.User.UUID, variable.Name}) {
			added++
		}
		if variable.Secret {
			if refusal := s.changedKey(c.Actor.Org, c.Key, variable.Key); refusal != nil {
				return refusal
			}
		}
	}
	if size := s.sizeAfter(c); size > compute.MaxVariableBytes {
		return compute.Errorf(compute.CodeTooLarge, "the variables of a user have at most %d bytes together, not %d",
			compute.MaxVariableBytes, size).Named("variables_too_large")
	}
	if have := len(s.view.Variables(c.Actor.Org, c.Actor.User)); have+added > compute.MaxVariables {
		return compute.Errorf(compute.CodeConflict, "a user has at most %d variables in an organization, not %d",
			compute.MaxVariables, have+added).Named("too_many_variables")
	}
	return nil
}

// sizeAfter returns the bytes of the names and values that the actor would have.
func (s *identity) sizeAfter(c *command.PutVariables) int {
	size := 0
	replaced := make(map[string]bool, len(c.Variables))
	count := func(v *compute.Variable) { size += len(v.Name) + len(v.Value) + len(v.Sealed) }
	for i := range c.Variables {
		replaced[c.Variables[i].Name] = true
		count(&c.Variables[i])
	}
	for _, v := range s.view.Variables(c.Actor.Org, c.Actor.User) {
		if !replaced[v.Name] {
			count(v)
		}
	}
	return size
}

// removeVariables removes one variable of the actor, or all of them.
func (s *identity) removeVariables(c command.RemoveVariables) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	removed := 0
	for _, variable := range s.view.Variables(c.Actor.Org, c.Actor.User) {
		if c.ID.IsZero() || variable.ID == c.ID {
			s.view.variables.Drop(variableKeyOf(variable))
			removed++
		}
	}
	if removed == 0 && !c.ID.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "No such variable.")
	}
	return command.Result{Count: removed}
}

// dropVariables removes the variables of a user that left an organization.
func (s *identity) dropVariables(org compute.OrgID, user compute.UserID) {
	for _, variable := range s.view.Variables(org, user) {
		s.view.variables.Drop(variableKeyOf(variable))
	}
}
