package deployment

import (
	"net/http"
	"slices"
	"unicode/utf8"

	"berth/api/edge"
	"berth/api/execution"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// models serves Serverless Inference: the models that operators publish for every
// organization. The requests to them are answered by package edge.
type models struct {
	deployments
}

// Routes returns the routes of the group.
func (g *models) Routes() []edge.Route {
	const all, one = edge.Root + "/admin/models", edge.Root + "/admin/models/{id}"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Need: edge.NeedOperator,
			Summary: "The models that every organization may use, by id.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[wire.Models](), Handle: g.list,
		},
		{
			Method: http.MethodPut, Path: one, Need: edge.NeedOperator, Rest: true,
			Summary: "Publish a deployment under an id for every organization, or change its prices.",
			Body:    edge.Type[wire.NewModel](), Reply: edge.Type[wire.Model](), Handle: g.set,
		},
		{
			Method: http.MethodDelete, Path: one, Need: edge.NeedOperator, Rest: true,
			Summary: "Withdraw a model. Its deployment stays.", Reply: edge.Type[wire.Message](), Handle: g.remove,
		},
	}
}

// list answers a page of the published models.
func (g *models) list(r *edge.Request) (any, error) {
	all := slices.Collect(r.View.Models())
	page, err := handler.Paged(r, all, func(m **compute.Model) string { return (*m).ID })
	if err != nil {
		return nil, err
	}
	out := wire.Models{Models: []wire.Model{}, Total: len(all)}
	for _, m := range page {
		out.Models = append(out.Models, modelOf(r.View, m))
	}
	return out, nil
}

// modelOf returns a published model as sent to clients.
func modelOf(view *fsm.View, m *compute.Model) wire.Model {
	out := wire.Model{
		ID: m.ID, Deployment: m.Deployment, Prompt: m.Prices.Prompt, Completion: m.Prices.Completion, Org: m.Org,
		CreatedAt: m.CreatedAt, ChangedAt: m.ChangedAt,
	}
	if e, ok := view.Execution(m.Org, m.Deployment); ok {
		ready := 0
		for _, row := range execution.ReplicasOf(view, e) {
			if row.Ready {
				ready++
			}
		}
		out.Root, out.Status = e.Inference.Model, deploymentStatus(view, e, ready)
	}
	return out
}

// set publishes a model.
func (g *models) set(r *edge.Request) (any, error) {
	if err := r.View.AllowsModels(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.NewModel)
	id, err := compute.ParseExecutionID(in.Deployment)
	if err != nil {
		return nil, err
	}
	name := r.Params["id"]
	_, err = g.ProposeAndSee(r, command.SetModel{
		Op: g.Op(r), Actor: r.Caller.Actor, ID: name, Deployment: id,
		Prices: compute.TokenPrices{Prompt: in.Prompt, Completion: in.Completion},
	})
	if err != nil {
		return nil, err
	}
	m, ok := r.View.Model(name)
	if !ok {
		return nil, edge.NotFound() // Withdrawn in this moment.
	}
	return modelOf(r.View, m), nil
}

// remove withdraws a model.
func (g *models) remove(r *edge.Request) (any, error) {
	if err := r.View.AllowsModels(); err != nil {
		return nil, err
	}
	name := r.Params["id"]
	if !utf8.ValidString(name) { // No command could carry it.
		return nil, edge.NotFound()
	}
	if _, err := g.ProposeAndSee(r, command.RemoveModel{Op: g.Op(r), Actor: r.Caller.Actor, ID: name}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The model " + name + " is withdrawn."}, nil
}
