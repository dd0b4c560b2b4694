package account

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// callbackSecrets serves the secrets that sign the callbacks of organizations.
type callbackSecrets struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *callbackSecrets) Routes() []edge.Route {
	const path = edge.Root + "/orgs/{slug}/callback-secret"
	role := compute.RoleFor(compute.ActManageKeys)
	return []edge.Route{
		{
			Method: http.MethodGet, Path: path, Tag: "Organizations", Need: edge.NeedOrg, Role: role,
			Summary: "Which secrets sign the callbacks of an organization, the newest first. Their values are not shown.",
			Reply:   edge.Type[[]wire.CallbackSecret](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: path, Tag: "Organizations", Need: edge.NeedOrg, Role: role, Once: true,
			Summary: "Have the callbacks of an organization signed as Standard Webhooks says, or rotate the secret. It is " +
				"shown this once. The one before signs them too for a day.",
			Reply: edge.Type[wire.MintedCallbackSecret](), Handle: g.create,
		},
		{
			Method: http.MethodDelete, Path: path, Tag: "Organizations", Need: edge.NeedOrg, Role: role,
			Summary: "Remove the secrets: callbacks are not signed from now on.",
			Reply:   edge.Type[wire.Message](), Handle: g.remove,
		},
	}
}

// list answers the secrets of an organization.
func (g *callbackSecrets) list(r *edge.Request) (any, error) {
	out := []wire.CallbackSecret{}
	for _, s := range r.Caller.Org.SigningSecrets(r.View.Now()) {
		out = append(out, callbackSecretOf(&s))
	}
	return out, nil
}

// callbackSecretOf returns a secret without its value.
func callbackSecretOf(s *compute.CallbackSecret) wire.CallbackSecret {
	return wire.CallbackSecret{Number: s.Number, CreatedAt: s.CreatedAt, ExpiresAt: wire.AtOrNull(s.EndsAt)}
}

// Callback secrets have the form that Standard Webhooks defines.
const (
	callbackSecretPrefix = "whsec_"
	callbackSecretBytes  = 32
)

// create makes a secret. Its value is in this answer, and sealed in the state.
func (g *callbackSecrets) create(r *edge.Request) (any, error) {
	if err := r.View.AllowsCallbackSecrets(); err != nil {
		return nil, err
	}
	var raw [callbackSecretBytes]byte
	_, _ = rand.Read(raw[:]) // It never fails.
	value := callbackSecretPrefix + base64.StdEncoding.EncodeToString(raw[:])
	id := r.Caller.Actor.Org
	secret := compute.CallbackSecret{Number: 1}
	if known := r.Caller.Org.Signing; len(known) > 0 {
		secret.Number = known[len(known)-1].Number + 1
	}
	cmd := command.SetCallbackSecret{Op: g.Op(r), Actor: r.Caller.Actor, Org: id}
	key := r.View.DataKey(id)
	if key == nil {
		var err error
		if key, err = g.Config.Vault.NewKey(id); err != nil {
			return nil, err
		}
		cmd.Key = key
	}
	if err := g.Config.Vault.SealCallback(key, id, &secret, value); err != nil {
		return nil, err
	}
	cmd.Secret = secret
	result, err := g.ProposeAndSee(r, cmd)
	if err != nil {
		return nil, err
	}
	org, ok := r.View.Org(id)
	if !ok || len(org.Signing) == 0 {
		return nil, edge.NotFound()
	}
	// A repeat inside the cluster finds the secret that this request made.
	newest := &org.Signing[len(org.Signing)-1]
	if result.Repeat && string(newest.Sealed) != string(secret.Sealed) {
		return nil, handler.ErrSecretGone("callback secret", org.Slug)
	}
	return wire.MintedCallbackSecret{CallbackSecret: callbackSecretOf(newest), Secret: value}, nil
}

// remove ends the signing.
func (g *callbackSecrets) remove(r *edge.Request) (any, error) {
	_, err := g.ProposeAndSee(r, command.RemoveCallbackSecret{Op: g.Op(r), Actor: r.Caller.Actor, Org: r.Caller.Actor.Org})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "Callbacks are not signed any more."}, nil
}
