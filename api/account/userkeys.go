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

// userKeys serves the caller's own API keys.
type userKeys struct {
	*handler.Core
	holder func(r *edge.Request, text string) (edge.Caller, bool) // Whom a key makes its holder.
}

// Routes returns the routes of the group.
func (g *userKeys) Routes() []edge.Route {
	const keys = edge.Root + "/auth/api-keys"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: keys, Tag: "Account", Need: edge.NeedCaller,
			Summary: "The caller's own API keys.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.UserKey](), Handle: g.listKeys,
		},
		{
			Method: http.MethodPost, Path: keys, Tag: "Account", Need: edge.NeedCaller, Once: true,
			Summary: "Create an API key of the caller's for the organization. Its value is shown this once.",
			Body:    edge.Type[wire.NewUserKey](), Reply: edge.Type[wire.MintedUserKey](), Handle: g.createKey,
		},
		{
			Method: http.MethodDelete, Path: keys + "/{id}", Tag: "Account", Need: edge.NeedCaller,
			Summary: "Delete one of the caller's API keys. It is refused from the next request on.",
			Reply:   edge.Type[wire.Message](), Handle: g.deleteKey,
		},
		{
			Method: http.MethodPatch, Path: keys + "/{id}/toggle", Tag: "Account", Need: edge.NeedCaller,
			Summary: "Disable or enable one of the caller's API keys.",
			Reply:   edge.Type[wire.UserKey](), Handle: g.toggleKey,
		},
		{
			Method: http.MethodPost, Path: keys + "/validate", Tag: "Account",
			Summary: "Whether an API key is valid, and whose it is.",
			Body:    edge.Type[wire.KeyToValidate](), Reply: edge.Type[wire.ValidatedKey](), Handle: g.validate,
		},
	}
}

// userKeyOf returns the record of a key as its user sees it.
func userKeyOf(view *fsm.View, k *compute.Key) wire.UserKey {
	return wire.UserKey{
		ID: k.ID, UserID: k.User, Name: k.Name, Prefix: k.Prefix, IsActive: k.Active,
		CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
		ExpiresAt: wire.AtOrNull(k.ExpiresAt), LastUsedAt: wire.AtOrNull(k.LastUsedAt),
		Scopes: compute.ScopeNames(k.Scopes), MaxCredits: ceilingOf(view, k),
	}
}

// own reports whether k is a key of the caller's own.
func own(r *edge.Request, k *compute.Key) bool { return k.Personal && k.User == r.Caller.Actor.User }

// listKeys answers the caller's keys, oldest first.
func (g *userKeys) listKeys(r *edge.Request) (any, error) {
	out := []wire.UserKey{}
	for _, k := range r.View.Keys(r.Caller.Actor.Org) {
		if own(r, k) {
			out = append(out, userKeyOf(r.View, k))
		}
	}
	return handler.Paged(r, out, func(k *wire.UserKey) string { return handler.ByTime(k.CreatedAt, k.ID) })
}

// createKey makes a key. Its value is in this answer and nowhere else.
func (g *userKeys) createKey(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewUserKey)
	k, value, err := mintKey(g.Core, r, compute.Key{
		Name: in.Name, ExpiresAt: in.ExpiresAt, Scopes: compute.ScopesOf(in.Scopes), Personal: true,
	}, in.MaxCredits)
	if err != nil {
		return nil, err
	}
	return wire.MintedUserKey{UserKey: userKeyOf(r.View, k), Value: value}, nil
}

// key returns the id of the caller's key in the path. The key exists, unless this
// is a repeat.
func (g *userKeys) key(r *edge.Request) (compute.KeyID, error) {
	id, err := keyID(r)
	if err != nil {
		return id, err
	}
	if k, ok := r.View.Key(r.Caller.Actor.Org, id); ok && !own(r, k) {
		return id, edge.NotFound()
	}
	return id, nil
}

// deleteKey removes a key.
func (g *userKeys) deleteKey(r *edge.Request) (any, error) {
	id, err := g.key(r)
	if err != nil {
		return nil, err
	}
	if _, err := g.Propose(r, command.DeleteKey{Op: g.Op(r), Actor: r.Caller.Actor, Key: id}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The API key is deleted."}, nil
}

// toggleKey disables or enables a key. The answer is the key right after that.
func (g *userKeys) toggleKey(r *edge.Request) (any, error) {
	id, err := g.key(r)
	if err != nil {
		return nil, err
	}
	k, err := toggled(g.Core, r, id)
	if err != nil {
		return nil, err
	}
	return userKeyOf(r.View, k), nil
}

// validate answers whom a key makes its holder. The caller has the key, so that
// the answer reveals nothing that the key does not.
func (g *userKeys) validate(r *edge.Request) (any, error) {
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	who, ok := g.holder(r, r.Body.(*wire.KeyToValidate).Key)
	if !ok {
		return wire.ValidatedKey{}, nil
	}
	out := wire.ValidatedKey{
		Valid: true, UserID: &who.User.ID, Email: &who.User.Email, OrgID: &who.Org.ID, OrgSlug: &who.Org.Slug,
	}
	if k, ok := r.View.Key(who.Org.ID, who.Actor.Key); ok {
		out.KeyID, out.KeyName, out.ExpiresAt = &k.ID, &k.Name, wire.AtOrNull(k.ExpiresAt)
		scopes := compute.ScopeNames(k.Scopes)
		out.Scopes = &scopes
	}
	return out, nil
}
