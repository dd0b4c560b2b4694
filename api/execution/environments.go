package execution

import (
	"net/http"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// environments serves named environments: to organizations their own and those of the
// cluster, to operators those of the cluster.
type environments struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *environments) Routes() []edge.Route {
	const all, shared = edge.Root + "/environments", edge.Root + "/admin/environments"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The named environments that executions of the organization may ask for, and how far the nodes are.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Environment](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: all, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Make a named environment of the organization, as its admin: the nodes install it ahead. " +
				"Paths are for operators.",
			Body: edge.Type[wire.NewEnvironment](), Reply: edge.Type[wire.Environment](),
			Handle: g.create,
		},
		{
			Method: http.MethodDelete, Path: all + "/{name}", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Delete a named environment of the organization, as its admin. It must not be in use.",
			Reply:   edge.Type[wire.Message](),
			Handle:  g.remove,
		},
		{
			Method: http.MethodGet, Path: shared, Need: edge.NeedOperator,
			Summary: "The named environments of the cluster, which every organization may use.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Environment](), Handle: g.listShared,
		},
		{
			Method: http.MethodPost, Path: shared, Need: edge.NeedOperator,
			Summary: "Make a named environment that every organization may use.",
			Body:    edge.Type[wire.NewEnvironment](), Reply: edge.Type[wire.Environment](),
			Handle: g.createShared,
		},
		{
			Method: http.MethodDelete, Path: shared + "/{name}", Need: edge.NeedOperator,
			Summary: "Delete a named environment of the cluster. It must not be in use.",
			Reply:   edge.Type[wire.Message](),
			Handle:  g.removeShared,
		},
	}
}

// environmentOf returns an environment as it is shown.
func environmentOf(view *fsm.View, e *compute.Environment) wire.Environment {
	out := wire.Environment{
		Name: e.Name, Status: e.Status(), Error: wire.OrNull(e.Failure()), Shared: e.Org.IsZero(),
		Requirements: wire.OrNull(e.Requirements), Path: wire.OrNull(e.Path), Interpreter: wire.OrNull(e.Interpreter),
		Nodes: []wire.EnvironmentNode{}, Size: e.SizeMiB() << 20, CreatedAt: e.CreatedAt,
	}
	for i := range e.Nodes {
		n := &e.Nodes[i]
		out.Nodes = append(out.Nodes, wire.EnvironmentNode{
			Node: handler.NodeName(view, n.Node), Status: n.Status, Size: n.SizeMiB << 20, Error: wire.OrNull(n.Error), At: n.At,
		})
	}
	slices.SortFunc(out.Nodes, func(a, b wire.EnvironmentNode) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// list answers the environments of the caller's organization and of the cluster.
func (g *environments) list(r *edge.Request) (any, error) {
	return g.listOf(r, r.Caller.Actor.Org)
}

// listShared answers the environments of the cluster.
func (g *environments) listShared(r *edge.Request) (any, error) {
	return g.listOf(r, compute.OrgID{})
}

// listOf answers a page of the environments of an organization and of the cluster, by name.
func (g *environments) listOf(r *edge.Request, org compute.OrgID) (any, error) {
	page, err := handler.Paged(r, r.View.EnvironmentsOf(org), func(e **compute.Environment) string { return (*e).Name })
	if err != nil {
		return nil, err
	}
	out := []wire.Environment{}
	for _, e := range page {
		out = append(out, environmentOf(r.View, e))
	}
	return out, nil
}

// create makes an environment of the caller's organization.
func (g *environments) create(r *edge.Request) (any, error) { return g.createOf(r, r.Caller.Actor.Org) }

// createShared makes an environment of the cluster.
func (g *environments) createShared(r *edge.Request) (any, error) {
	return g.createOf(r, compute.OrgID{})
}

// createOf makes an environment of an organization, or with a zero one of the cluster.
func (g *environments) createOf(r *edge.Request, org compute.OrgID) (any, error) {
	if err := r.View.AllowsEnvironments(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.NewEnvironment)
	env := compute.Environment{
		ID: compute.EnvironmentID{UUID: g.NewID()}, Org: org, Name: in.Name,
		Requirements: in.Requirements, Path: in.Path, Interpreter: in.Interpreter,
	}
	_, err := g.ProposeAndSee(r, command.CreateEnvironment{Op: g.Op(r), Actor: r.Caller.Actor, Environment: env})
	if err != nil {
		return nil, err
	}
	made, ok := r.View.Environment(org, in.Name)
	if !ok {
		return nil, edge.NotFound() // It was deleted since.
	}
	return environmentOf(r.View, made), nil
}

// remove deletes an environment of the caller's organization.
func (g *environments) remove(r *edge.Request) (any, error) { return g.removeOf(r, r.Caller.Actor.Org) }

// removeShared deletes an environment of the cluster.
func (g *environments) removeShared(r *edge.Request) (any, error) {
	return g.removeOf(r, compute.OrgID{})
}

// removeOf deletes an environment of an organization, or with a zero one of the cluster.
func (g *environments) removeOf(r *edge.Request, org compute.OrgID) (any, error) {
	if err := r.View.AllowsEnvironments(); err != nil {
		return nil, err
	}
	name := r.Params["name"]
	if _, known := r.View.Environment(org, name); !known && !r.Repeat {
		return nil, edge.NotFound()
	}
	_, err := g.Propose(r, command.DeleteEnvironment{Op: g.Op(r), Actor: r.Caller.Actor, Org: org, Name: name})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The environment " + name + " is deleted."}, nil
}
