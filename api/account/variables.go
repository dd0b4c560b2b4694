package account

import (
	"fmt"
	"net/http"
	"slices"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// maskedValue stands in place of the value of a secret.
const maskedValue = "****"

// variables serves the environment variables that users keep for their executions.
type variables struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *variables) Routes() []edge.Route {
	const all = edge.Root + "/environment-variables"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Tag: "Environment Variables", Need: edge.NeedCaller,
			Summary: "The caller's environment variables in the organization. Values of secrets are masked.",
			Reply:   edge.Type[wire.Variables](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: all, Tag: "Environment Variables", Need: edge.NeedCaller,
			Summary: "Keep environment variables: all of the caller's own executions that start from now on have them." +
				" One with a known name is replaced.",
			Body: edge.Type[wire.PutVariables](), Reply: edge.Type[wire.Variables](), Handle: g.put,
		},
		{
			Method: http.MethodDelete, Path: all, Tag: "Environment Variables", Need: edge.NeedCaller,
			Summary: "Delete all of the caller's environment variables in the organization.",
			Reply:   edge.Type[wire.DeletedVariables](), Handle: g.removeAll,
		},
		{
			Method: http.MethodDelete, Path: all + "/{id}", Tag: "Environment Variables", Need: edge.NeedCaller,
			Summary: "Delete an environment variable.",
			Reply:   edge.Type[wire.Message](), Handle: g.remove,
		},
	}
}

// shown returns the caller's variables.
func (g *variables) shown(r *edge.Request) wire.Variables {
	out := wire.Variables{Variables: []wire.Variable{}}
	for _, v := range r.View.Variables(r.Caller.Actor.Org, r.Caller.Actor.User) {
		value := v.Value
		if v.Secret {
			value = maskedValue
		}
		out.Variables = append(out.Variables, wire.Variable{
			ID: v.ID, Name: v.Name, Value: value, Secret: v.Secret, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
		})
	}
	return out
}

// list answers the caller's variables.
func (g *variables) list(r *edge.Request) (any, error) { return g.shown(r), nil }

// put keeps variables. Secrets are sealed here: no value of one is proposed.
func (g *variables) put(r *edge.Request) (any, error) {
	if err := r.View.AllowsVariables(); err != nil {
		return nil, err
	}
	actor := r.Caller.Actor
	cmd := command.PutVariables{Op: g.Op(r), Actor: actor}
	key := r.View.DataKey(actor.Org)
	for _, in := range r.Body.(*wire.PutVariables).Variables {
		v := compute.Variable{
			ID: compute.VariableID{UUID: g.NewID()}, Org: actor.Org, User: actor.User, Name: in.Name, Secret: in.Secret,
		}
		if !in.Secret {
			v.Value = *in.Value
			cmd.Variables = append(cmd.Variables, v)
			continue
		}
		var err error
		if key == nil {
			if key, err = g.Config.Vault.NewKey(actor.Org); err != nil {
				return nil, err
			}
			cmd.Key = key
		}
		if err := g.Config.Vault.Seal(key, &v, *in.Value); err != nil {
			return nil, err
		}
		cmd.Variables = append(cmd.Variables, v)
	}
	if _, err := g.ProposeAndSee(r, cmd); err != nil {
		return nil, err
	}
	return g.shown(r), nil
}

// removeAll deletes the caller's variables.
func (g *variables) removeAll(r *edge.Request) (any, error) {
	result, err := g.ProposeAndSee(r, command.RemoveVariables{Op: g.Op(r), Actor: r.Caller.Actor})
	if err != nil {
		return nil, err
	}
	return wire.DeletedVariables{
		Deleted: result.Count, Message: fmt.Sprintf("%d environment variables are deleted.", result.Count),
	}, nil
}

// remove deletes one variable.
func (g *variables) remove(r *edge.Request) (any, error) {
	id, err := compute.ParseVariableID(r.Params["id"])
	if err != nil || id.IsZero() {
		return nil, edge.NotFound()
	}
	known := func(v *compute.Variable) bool { return v.ID == id }
	if !r.Repeat && !slices.ContainsFunc(r.View.Variables(r.Caller.Actor.Org, r.Caller.Actor.User), known) {
		return nil, edge.NotFound()
	}
	if _, err := g.ProposeAndSee(r, command.RemoveVariables{Op: g.Op(r), Actor: r.Caller.Actor, ID: id}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The environment variable is deleted."}, nil
}
