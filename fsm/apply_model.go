package fsm

import (
	"fmt"
	"iter"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// modelTables has the published models and their usage.
type modelTables struct {
	models        store.Records[string, compute.Model]
	tokenHolds    store.Records[tokenHoldKey, compute.TokenHold]
	tokenUsage    store.Records[tokenUsageKey, compute.TokenUsage] // Usage of minutes that are not posted.
	tokenTotals   store.Records[tokenTotalKey, compute.TokenTotal]
	tokenSessions store.Records[compute.NodeID, tokenSession]
}

// Model returns the published model with an id.
func (v *modelTables) Model(id string) (*compute.Model, bool) { return v.models.Get(id) }

// Models yields the published models by id.
func (v *modelTables) Models() iter.Seq[*compute.Model] { return v.models.Values() }

// publishedAs returns a model for which a deployment answers.
func (v *modelTables) publishedAs(deployment compute.ExecutionID) (*compute.Model, bool) {
	for m := range v.models.Values() {
		if m.Deployment == deployment {
			return m, true
		}
	}
	return nil, false
}

// setModel publishes a deployment, normally one of the operator's own organization: its
// owner pays for its replicas.
func (s *deployment) setModel(c command.SetModel) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	e, refusal := s.deploymentOf(c.Deployment)
	known, there := s.view.models.Get(c.ID)
	switch {
	case !compute.ValidModelID(c.ID):
		return refuse(compute.CodeInvalid, "model_id",
			"the id of a model has at most %d letters, digits and ._:/- between them, and is not that of a deployment",
			compute.MaxModelID)
	case !c.Prices.Valid():
		return refuse(compute.CodeInvalid, "price", "a price is from 0 to %s credits for a million tokens",
			compute.MaxTokenPrice)
	case refusal != nil:
		return command.Result{Refusal: refusal}
	case e.Stop != compute.StopNone:
		return refuse(compute.CodeConflict, "deployment_ends", "the deployment ends: publish another one")
	case !there && s.view.models.Len() >= compute.MaxModels:
		return refuse(compute.CodeForbidden, "too_many_models", "there are at most %d models: remove one",
			compute.MaxModels)
	}
	m := &compute.Model{
		ID: c.ID, Deployment: e.ID, Org: e.Org, Prices: c.Prices, CreatedAt: s.view.meta.Now, ChangedAt: s.view.meta.Now,
	}
	if there {
		m.CreatedAt = known.CreatedAt
	}
	s.view.models.Put(m)
	return command.Result{Execution: e.ID}
}

// removeModel withdraws a published model.
func (s *deployment) removeModel(c command.RemoveModel) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	m, ok := s.view.models.Get(c.ID)
	if !ok {
		return refuse(compute.CodeNotFound, "model_not_found", "no model is published under this id")
	}
	s.view.models.Drop(c.ID)
	return command.Result{Execution: m.Deployment}
}

// admitEnd refuses to end a deployment that others use as a published model.
func (v *modelTables) admitEnd(e *compute.Execution) *compute.Error {
	if e.Deployment == nil {
		return nil
	}
	if m, ok := v.publishedAs(e.ID); ok {
		return compute.Errorf(compute.CodeConflict,
			"the deployment is published as the model %q: an operator removes that first (berth admin model rm %s)",
			m.ID, m.ID).Named("model_published")
	}
	return nil
}

// checkModels checks that published models have a deployment that goes on.
func (v checker) checkModels() error {
	for m := range v.view.models.Values() {
		e, ok := v.view.executions.Get(m.Deployment)
		if !compute.ValidModelID(m.ID) || !m.Prices.Valid() || !ok || e.Deployment == nil || e.Org != m.Org {
			return fmt.Errorf("model %q has no deployment, or a bad price", m.ID)
		}
		if e.Status.Terminal() || e.Stop != compute.StopNone {
			return fmt.Errorf("the deployment of model %q has ended", m.ID)
		}
	}
	return v.checkTokens()
}
