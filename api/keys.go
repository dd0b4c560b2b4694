package api

import (
	"cmp"
	"net/http"
	"slices"

	"berth/api/auth"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// keys serves the API keys of an organization.
type keys struct {
	*core
}

// routes returns the routes of the group.
func (g *keys) routes() []route {
	const keys = root + "/orgs/{slug}/api-keys"
	return []route{
		{
			method: http.MethodGet, path: keys, tag: "Account", need: needOrg,
			summary: "The API keys of an organization.",
			reply:   of[[]wire.Key](), handle: g.listKeys,
		},
		{
			method: http.MethodPost, path: keys, tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin, once: true,
			summary: "Create an API key. Its value is shown this once.",
			body:    of[wire.NewKey](), reply: of[wire.MintedKey](), handle: g.createKey,
		},
		{
			method: http.MethodDelete, path: keys + "/{id}", tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin,
			summary: "Delete an API key. It is refused from the next request on.",
			reply:   of[wire.Message](), handle: g.deleteKey,
		},
		{
			method: http.MethodPatch, path: keys + "/{id}/toggle", tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin,
			summary: "Disable or enable an API key.",
			reply:   of[wire.Key](), handle: g.toggleKey,
		},
		{
			method: http.MethodPost, path: keys + "/{id}/regenerate", tag: "Org API Keys", need: needOrg,
			role: compute.OrgAdmin, once: true,
			summary: "Replace the value of an API key. The new one is shown this once, and the old one is refused.",
			reply:   of[wire.MintedKey](), handle: g.regenerateKey,
		},
	}
}

// keyOf returns the record of a key as its organization sees it.
func keyOf(k *compute.Key) wire.Key {
	return wire.Key{
		ID: k.ID, OrgID: k.Org, Name: k.Name, Prefix: k.Prefix, IsActive: k.Active,
		CreatedAt: k.CreatedAt, ExpiresAt: atOrNull(k.ExpiresAt), LastUsedAt: atOrNull(k.LastUsedAt),
	}
}

// listKeys answers the keys of an organization, oldest first.
func (g *keys) listKeys(r *request) (any, error) {
	out := []wire.Key{}
	for _, k := range r.view.Keys(r.caller.actor.Org) {
		if !k.Personal {
			out = append(out, keyOf(k))
		}
	}
	slices.SortStableFunc(out, func(a, b wire.Key) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return out, nil
}

// createKey makes a key. Its value is in this answer and nowhere else.
func (g *keys) createKey(r *request) (any, error) {
	in := r.body.(*wire.NewKey)
	if !r.repeat && !in.ExpiresAt.IsZero() && in.ExpiresAt <= compute.InstantOf(g.now()) {
		f := new(wire.Faults)
		f.Value("expires_at is in the past", "body", "expires_at")
		return nil, f
	}
	minted, err := g.credentials.newAPIKey()
	if err != nil {
		return nil, err
	}
	key := compute.Key{
		ID: compute.KeyID{UUID: g.newID()}, Lookup: minted.Lookup, Hash: minted.Hash,
		Org: r.caller.actor.Org, User: r.caller.actor.User, Name: in.Name,
		Prefix: minted.Prefix, Active: true, ExpiresAt: in.ExpiresAt,
	}
	result, err := g.proposeAndSee(r, fsm.CreateKey{Op: g.op(r), Actor: r.caller.actor, Key: key})
	if err != nil {
		return nil, err
	}
	// A repeat inside the cluster finds the key that this request made.
	if result.Repeat && result.ID != key.ID.UUID {
		return nil, errSecretGone("key", result.ID.String())
	}
	return g.minted(r, key.ID, minted)
}

// minted answers a key with its value.
func (g *keys) minted(r *request, id compute.KeyID, minted auth.APIKey) (any, error) {
	k, ok := r.view.Key(r.caller.actor.Org, id)
	if !ok {
		return nil, errNotFound()
	}
	return wire.MintedKey{Key: keyOf(k), PlaintextKey: minted.Text}, nil
}

// keyID returns the id of the key in the path. The key exists, unless this is a
// repeat.
func keyID(r *request) (compute.KeyID, error) {
	id, err := compute.ParseKeyID(r.params["id"])
	if err != nil {
		return id, errNotFound()
	}
	if _, ok := r.view.Key(r.caller.actor.Org, id); !ok && !r.repeat {
		return id, errNotFound()
	}
	return id, nil
}

// deleteKey removes a key.
func (g *keys) deleteKey(r *request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	if _, err := g.propose(r, fsm.DeleteKey{Op: g.op(r), Actor: r.caller.actor, Key: id}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The API key is deleted."}, nil
}

// toggleKey disables or enables a key. The answer is the key right after that.
func (g *keys) toggleKey(r *request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	result, err := g.proposeAndSee(r, fsm.ToggleKey{Op: g.op(r), Actor: r.caller.actor, Key: id})
	switch {
	case err != nil:
		return nil, err
	case result.Key != nil:
		return keyOf(result.Key), nil
	}
	k, ok := r.view.Key(r.caller.actor.Org, id) // An older leader's decision says no more.
	if !ok {
		return nil, errNotFound()
	}
	return keyOf(k), nil
}

// regenerateKey gives a key a new value, in this answer and nowhere else.
func (g *keys) regenerateKey(r *request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	minted, err := g.credentials.newAPIKey()
	if err != nil {
		return nil, err
	}
	result, err := g.proposeAndSee(r, fsm.RegenerateKey{
		Op: g.op(r), Actor: r.caller.actor, Key: id,
		Lookup: minted.Lookup, Prefix: minted.Prefix, Hash: minted.Hash,
	})
	if err != nil {
		return nil, err
	}
	k, ok := r.view.Key(r.caller.actor.Org, id)
	switch {
	case ok && k.Hash == minted.Hash:
		return g.minted(r, id, minted)
	case ok || result.Repeat:
		return nil, errSecretGone("key", id.String())
	}
	return nil, errNotFound()
}
