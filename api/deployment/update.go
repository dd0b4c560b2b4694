package deployment

import (
	"cmp"
	"math"
	"time"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// update changes a deployment; the leader replaces its replicas.
func (g *deployments) update(r *edge.Request) (any, error) {
	in := r.Body.(*wire.DeploymentUpdate)
	if err := r.View.AllowsUpdates(); err != nil && !r.Repeat {
		return nil, err
	}
	e, err := g.findDeployment(r)
	if err != nil {
		return nil, err
	}
	cmd := command.UpdateDeployment{Op: g.Op(r), Actor: r.Caller.Actor, Deployment: e.ID}
	if in.Replaces() {
		model, err := g.nextModel(in, e)
		if err != nil {
			return nil, err
		}
		next, before := *e, e.MinVRAMMiB
		if e.Deployment.Next != nil {
			before = e.Deployment.NextVRAMMiB
		}
		if in.Model != "" {
			before = 0 // The new model has another size.
		}
		next.Inference, next.MinVRAMMiB = &model, askedVRAM(e)
		if err := g.fits(r, &wire.DeploymentCreate{Model: model.Model, Token: in.Token}, &next, before); err != nil {
			return nil, err
		}
		if cmd.Key, err = g.sealToken(r, in.Token, e.ID, &model); err != nil {
			return nil, err
		}
		cmd.Model, cmd.MinVRAMMiB = &model, next.MinVRAMMiB
	}
	if scaling := scalingOf(in, e.Deployment); scaling != *e.Deployment {
		cmd.Scaling = &scaling
	}
	if _, err := g.ProposeAndSee(r, cmd); err != nil {
		return nil, err
	}
	if now, ok := r.View.Execution(e.Org, e.ID); ok {
		e = now
	}
	message := "The deployment is changed."
	if e.Deployment.Next != nil {
		message = "The deployment is changed; its replicas are replaced once another one is ready."
	}
	return wire.DeploymentCreated{ID: e.ID, Status: g.deploymentOf(r, r.View, e).Status, Message: message}, nil
}

// askedVRAM returns the GPU memory that a deployment asked for, whatever its model needs.
// Records before format 16 do not say it: a whole number of GiB is then taken to be it,
// because people ask for those.
func askedVRAM(e *compute.Execution) int64 {
	if asked := e.Deployment.AskedVRAMMiB; asked > 0 || e.MinVRAMMiB%1024 != 0 {
		return asked
	}
	return e.MinVRAMMiB
}

// nextModel returns what the replicas are to execute after an update, which may follow
// one that is still under way.
func (g *deployments) nextModel(in *wire.DeploymentUpdate, e *compute.Execution) (compute.Inference, error) {
	model := *cmp.Or(e.Deployment.Next, e.Inference)
	if in.Model != "" {
		if !g.Config.Inference.ValidModel(in.Model) {
			return model, compute.Errorf(compute.CodeInvalid,
				"hf_model_id is owner/name, with @revision, and with :part for one file").Named("hf_model_id")
		}
		model.Model = in.Model
	}
	if in.Args == nil {
		return model, nil
	}
	var err error
	model.Args, err = g.Config.Inference.Args(model.Engine, *in.Args)
	return model, err
}

// scalingOf returns the limits and targets of a deployment after an update.
func scalingOf(in *wire.DeploymentUpdate, d *compute.Deployment) compute.Deployment {
	out := *d
	if in.MinReplicas != nil {
		out.Min = *in.MinReplicas
	}
	if in.MaxReplicas != nil {
		out.Max = *in.MaxReplicas
	}
	if in.TargetRPS != nil {
		out.TargetMilliRPS = max(int64(math.Round(*in.TargetRPS*1000)), 1)
	}
	if in.TargetP95 != nil {
		out.TargetP95 = time.Duration(*in.TargetP95) * time.Millisecond
	}
	if in.Window != nil {
		out.Window = time.Duration(*in.Window) * time.Second
	}
	return out
}
