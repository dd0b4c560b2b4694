package account

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// keys serves the API keys of an organization.
type keys struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *keys) Routes() []edge.Route {
	const keys = edge.Root + "/orgs/{slug}/api-keys"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: keys, Tag: "Account", Need: edge.NeedOrg,
			Summary: "The API keys of an organization.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Key](), Handle: g.listKeys,
		},
		{
			Method: http.MethodPost, Path: keys, Tag: "Org API Keys", Need: edge.NeedOrg, Role: compute.OrgAdmin,
			Once:    true,
			Summary: "Create an API key. Its value is shown this once.",
			Body:    edge.Type[wire.NewKey](), Reply: edge.Type[wire.MintedKey](), Handle: g.createKey,
		},
		{
			Method: http.MethodDelete, Path: keys + "/{id}", Tag: "Org API Keys", Need: edge.NeedOrg, Role: compute.OrgAdmin,
			Summary: "Delete an API key. It is refused from the next request on.",
			Reply:   edge.Type[wire.Message](), Handle: g.deleteKey,
		},
		{
			Method: http.MethodPatch, Path: keys + "/{id}/toggle", Tag: "Org API Keys", Need: edge.NeedOrg,
			Role:    compute.OrgAdmin,
			Summary: "Disable or enable an API key.",
			Reply:   edge.Type[wire.Key](), Handle: g.toggleKey,
		},
		{
			Method: http.MethodPost, Path: keys + "/{id}/regenerate", Tag: "Org API Keys", Need: edge.NeedOrg,
			Role: compute.OrgAdmin, Once: true,
			Summary: "Replace the value of an API key. The new one is shown this once, and the old one is refused. " +
				"The key then acts as who replaced it.",
			Reply: edge.Type[wire.MintedKey](), Handle: g.regenerateKey,
		},
	}
}

// keyOf returns the record of a key as its organization sees it.
func keyOf(view *fsm.View, k *compute.Key) wire.Key {
	return wire.Key{
		ID: k.ID, OrgID: k.Org, Name: k.Name, Prefix: k.Prefix, IsActive: k.Active,
		CreatedAt: k.CreatedAt, ExpiresAt: wire.AtOrNull(k.ExpiresAt), LastUsedAt: wire.AtOrNull(k.LastUsedAt),
		Scopes: compute.ScopeNames(k.Scopes), MaxCredits: ceilingOf(view, k),
	}
}

// listKeys answers the keys of an organization, oldest first.
func (g *keys) listKeys(r *edge.Request) (any, error) {
	out := []wire.Key{}
	for _, k := range r.View.Keys(r.Caller.Actor.Org) {
		if !k.Personal {
			out = append(out, keyOf(r.View, k))
		}
	}
	return handler.Paged(r, out, func(k *wire.Key) string { return handler.ByTime(k.CreatedAt, k.ID) })
}

// createKey makes a key. Its value is in this answer and nowhere else.
func (g *keys) createKey(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewKey)
	wanted := compute.Key{Name: in.Name, ExpiresAt: in.ExpiresAt, Scopes: compute.ScopesOf(in.Scopes)}
	k, value, err := mintKey(g.Core, r, wanted, in.MaxCredits)
	if err != nil {
		return nil, err
	}
	return wire.MintedKey{Key: keyOf(r.View, k), PlaintextKey: value}, nil
}

// mintKey makes a key of the caller's with the name, the expiry and the kind of
// wanted, and with a ceiling unless that is 0. It returns the key and its value, which is
// stored nowhere.
func mintKey(
	c *handler.Core, r *edge.Request, wanted compute.Key, ceiling compute.Credits,
) (*compute.Key, string, error) {
	if !r.Repeat && !wanted.ExpiresAt.IsZero() && wanted.ExpiresAt <= compute.InstantOf(c.Now()) {
		f := new(wire.Faults)
		f.Value("expires_at is in the past", "body", "expires_at")
		return nil, "", f
	}
	if len(wanted.Scopes) > 0 {
		if err := r.View.AllowsScopes(); err != nil {
			return nil, "", err
		}
	}
	minted, err := c.Credentials.NewAPIKey()
	if err != nil {
		return nil, "", err
	}
	key := compute.Key{
		ID: compute.KeyID{UUID: c.NewID()}, Lookup: minted.Lookup, Hash: minted.Hash,
		Org: r.Caller.Actor.Org, User: r.Caller.Actor.User, Personal: wanted.Personal, Name: wanted.Name,
		Prefix: minted.Prefix, Active: true, ExpiresAt: wanted.ExpiresAt, Scopes: wanted.Scopes,
	}
	result, err := c.ProposeAndSee(r, command.CreateKey{Op: c.Op(r), Actor: r.Caller.Actor, Key: key, MaxCredits: ceiling})
	if err != nil {
		return nil, "", err
	}
	// A repeat inside the cluster finds the key that this request made.
	if result.Repeat && result.ID != key.ID.UUID {
		return nil, "", handler.ErrSecretGone("key", result.ID.String())
	}
	k, ok := r.View.Key(key.Org, key.ID)
	if !ok {
		return nil, "", edge.NotFound()
	}
	return k, minted.Text, nil
}

// keyID returns the id of the key in the path. The key exists, unless this is a
// repeat.
func keyID(r *edge.Request) (compute.KeyID, error) {
	id, err := compute.ParseKeyID(r.Params["id"])
	if err != nil {
		return id, edge.NotFound()
	}
	if _, ok := r.View.Key(r.Caller.Actor.Org, id); !ok && !r.Repeat {
		return id, edge.NotFound()
	}
	return id, nil
}

// deleteKey removes a key.
func (g *keys) deleteKey(r *edge.Request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	if _, err := g.Propose(r, command.DeleteKey{Op: g.Op(r), Actor: r.Caller.Actor, Key: id}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The API key is deleted."}, nil
}

// toggleKey disables or enables a key. The answer is the key right after that.
func (g *keys) toggleKey(r *edge.Request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	k, err := toggled(g.Core, r, id)
	if err != nil {
		return nil, err
	}
	return keyOf(r.View, k), nil
}

// toggled disables or enables a key and returns it as it is right after that.
func toggled(c *handler.Core, r *edge.Request, id compute.KeyID) (*compute.Key, error) {
	result, err := c.ProposeAndSee(r, command.ToggleKey{Op: c.Op(r), Actor: r.Caller.Actor, Key: id})
	if err != nil || result.Key != nil {
		return result.Key, err
	}
	k, ok := r.View.Key(r.Caller.Actor.Org, id) // An older leader's decision says no more.
	if !ok {
		return nil, edge.NotFound()
	}
	return k, nil
}

// regenerateKey gives a key a new value, in this answer and nowhere else.
func (g *keys) regenerateKey(r *edge.Request) (any, error) {
	id, err := keyID(r)
	if err != nil {
		return nil, err
	}
	minted, err := g.Credentials.NewAPIKey()
	if err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, command.RegenerateKey{
		Op: g.Op(r), Actor: r.Caller.Actor, Key: id,
		Lookup: minted.Lookup, Prefix: minted.Prefix, Hash: minted.Hash,
	})
	if err != nil {
		return nil, err
	}
	k, ok := r.View.Key(r.Caller.Actor.Org, id)
	switch {
	case ok && k.Hash == minted.Hash:
		return wire.MintedKey{Key: keyOf(r.View, k), PlaintextKey: minted.Text}, nil
	case ok || result.Repeat:
		return nil, handler.ErrSecretGone("key", id.String())
	}
	return nil, edge.NotFound()
}

// ceilingOf returns the ceiling of a key, nil for none.
func ceilingOf(view *fsm.View, k *compute.Key) *compute.Credits {
	b, ok := view.Budget(k.Org, k.ID, compute.UserID{})
	if !ok || !b.Enforce {
		return nil
	}
	return &b.MaxCredits
}
