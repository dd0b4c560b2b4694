package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"berth/compute"
	"berth/fsm"
	"berth/node/secrets"
)

// vault seals the secrets of users for the state, and opens them for attempts.
type vault struct{ master *secrets.Master }

// NewKey returns the first data key of an organization.
func (v vault) NewKey(org compute.OrgID) (*compute.DataKey, error) {
	key := &compute.DataKey{Org: org, Number: 1}
	var err error
	key.Sealed, err = v.master.NewDataKey(key.Context())
	return key, err
}

// Seal puts the value of a secret into its record, sealed.
func (v vault) Seal(key *compute.DataKey, variable *compute.Variable, value string) error {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return err
	}
	variable.Key = key.Number
	variable.Sealed, err = opened.Seal(value, variable.Context())
	return err
}

// SealText returns a text sealed for a context, which Open needs to open it.
func (v vault) SealText(key *compute.DataKey, text, context string) ([]byte, error) {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return nil, err
	}
	return opened.Seal(text, []byte(context))
}

// credentials returns the credentials for the registry of an execution's images,
// with the secrets of its user filled in; nil for none.
func (v vault) credentials(view *fsm.View, e *compute.Execution) (*compute.RegistryCredentials, error) {
	hub := e.Inference != nil && len(e.Inference.Token) > 0
	if !hub && (e.Container == nil || len(e.Container.Credentials) == 0) {
		return nil, nil
	}
	key := view.DataKey(e.Org)
	if key == nil {
		return nil, fmt.Errorf("the organization %s has no data key", e.Org)
	}
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return nil, err
	}
	owner := e.SealedFor()
	if hub { // The token for a hub of models; an engine's own image needs none.
		token, err := opened.Unseal(e.Inference.Token, []byte(compute.TokenContext(e.Org, owner)))
		return &compute.RegistryCredentials{Password: token}, err
	}
	text, err := opened.Unseal(e.Container.Credentials, []byte(e.Container.Context(e.Org, owner)))
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	c := new(compute.RegistryCredentials)
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	for _, field := range []*string{&c.Password, &c.AWSSecret} {
		*field, err = compute.ExpandSecrets(*field, func(name string) (string, error) { return v.secret(view, e.ID, name) })
		if err != nil {
			return nil, compute.Errorf(compute.CodeInvalid, "registry credentials: %s", err.Error())
		}
	}
	return c, nil
}

// SealCallback puts the value of a callback secret of an organization into its record,
// sealed.
func (v vault) SealCallback(
	key *compute.DataKey, org compute.OrgID, secret *compute.CallbackSecret, value string,
) error {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return err
	}
	secret.Key = key.Number
	secret.Sealed, err = opened.Seal(value, secret.Context(org))
	return err
}

// RotateKey returns a data key that seals with another key from then on.
func (v vault) RotateKey(key *compute.DataKey) (*compute.DataKey, error) {
	next := *key
	next.Number++
	var err error
	next.Sealed, err = v.master.RotateDataKey(key.Sealed, key.Context())
	return &next, err
}

// RetireKeys returns a data key without the keys that no longer seal.
func (v vault) RetireKeys(key *compute.DataKey) (*compute.DataKey, error) {
	next := *key
	var err error
	next.Sealed, err = v.master.RetireDataKeys(key.Sealed, key.Context())
	return &next, err
}

// Reseal seals the value of a secret with the key that seals now.
func (v vault) Reseal(key *compute.DataKey, variable *compute.Variable) error {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return err
	}
	value, err := opened.Unseal(variable.Sealed, variable.Context())
	if err != nil {
		return fmt.Errorf("variable %s: %w", variable.Name, err)
	}
	variable.Key = key.Number
	variable.Sealed, err = opened.Seal(value, variable.Context())
	return err
}

// ResealText seals a text that is sealed for a context with the key that seals now.
func (v vault) ResealText(key *compute.DataKey, sealed []byte, context string) ([]byte, error) {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return nil, err
	}
	text, err := opened.Unseal(sealed, []byte(context))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", context, err)
	}
	return opened.Seal(text, []byte(context))
}

// ResealCallback seals a callback secret with the key that seals now.
func (v vault) ResealCallback(key *compute.DataKey, org compute.OrgID, secret *compute.CallbackSecret) error {
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return err
	}
	value, err := opened.Unseal(secret.Sealed, secret.Context(org))
	if err != nil {
		return fmt.Errorf("callback secret %d: %w", secret.Number, err)
	}
	secret.Key = key.Number
	secret.Sealed, err = opened.Seal(value, secret.Context(org))
	return err
}

// signing returns the secrets that sign the callbacks of an organization now.
func (v vault) signing(view *fsm.View, id compute.OrgID, at compute.Instant) ([]string, error) {
	org, ok := view.Org(id)
	if !ok {
		return nil, nil
	}
	kept := org.SigningSecrets(at)
	if len(kept) == 0 {
		return nil, nil
	}
	key := view.DataKey(id)
	if key == nil {
		return nil, fmt.Errorf("the organization %s has no data key", id)
	}
	opened, err := v.master.OpenDataKey(key.Sealed, key.Context())
	if err != nil {
		return nil, err
	}
	var out []string
	for _, secret := range kept {
		value, err := opened.Unseal(secret.Sealed, secret.Context(id))
		if err != nil {
			return nil, fmt.Errorf("callback secret %d: %w", secret.Number, err)
		}
		out = append(out, value)
	}
	return out, nil
}

// secret returns the value of a variable that the user of an execution keeps.
func (v vault) secret(view *fsm.View, id compute.ExecutionID, name string) (string, error) {
	e, ok := view.AnyExecution(id)
	if !ok {
		return "", errors.New("the execution is gone")
	}
	kept, err := v.variables(view, e)
	if err != nil {
		return "", err
	}
	for _, variable := range kept {
		if variable.Name == name {
			return variable.Value, nil
		}
	}
	return "", errors.New("the user keeps no such secret")
}

// variables returns the variables that the user of an execution keeps for all
// own executions.
func (v vault) variables(view *fsm.View, e *compute.Execution) ([]compute.EnvVariable, error) {
	kept := view.Variables(e.Org, e.User)
	if len(kept) == 0 {
		return nil, nil
	}
	var opened *secrets.DataKey
	out := make([]compute.EnvVariable, 0, len(kept))
	for _, variable := range kept {
		value := variable.Value
		if variable.Secret {
			var err error
			if opened == nil {
				key := view.DataKey(e.Org)
				if key == nil {
					return nil, fmt.Errorf("the organization %s has no data key", e.Org)
				}
				if opened, err = v.master.OpenDataKey(key.Sealed, key.Context()); err != nil {
					return nil, err
				}
			}
			if value, err = opened.Unseal(variable.Sealed, variable.Context()); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		out = append(out, compute.EnvVariable{Name: variable.Name, Value: value, Secret: variable.Secret})
	}
	return out, nil
}

// ownSecrets opens what attempts of this server need.
type ownSecrets struct{ node *Node }

// credentials returns the registry credentials for an attempt of this server.
func (o ownSecrets) credentials(_ context.Context, w compute.Work) (*compute.RegistryCredentials, error) {
	view, e := o.node.machine.View(), w.Execution
	if newest, ok := view.AnyExecution(e.ID); ok {
		e = newest // They may be sealed with another key since the attempt was placed.
	}
	return vault{o.node.master}.credentials(view, e)
}

// variables returns the variables for an attempt of this server.
func (o ownSecrets) variables(_ context.Context, w compute.Work) ([]compute.EnvVariable, error) {
	return vault{o.node.master}.variables(o.node.machine.View(), w.Execution)
}
