package edge

import (
	"context"
	"errors"
	"time"

	"berth/api/edge/openai"
	"berth/compute"
	"berth/fsm/command"
)

// await finds the model, and waits until one of its replicas is ready. It resumes one
// that is paused.
func (c *modelCall) await(ctx context.Context, below string) error {
	if c.find(c.asked.Model); c.model == nil {
		if err := c.renew(); err != nil { //nolint:contextcheck // It lives as the server does.
			return err
		}
	}
	if err := c.claim(ctx, below); err != nil {
		return err
	}
	if c.model.Deployment.State == compute.DeploymentActive && c.cfg.Models.Ready(c.r.View, c.model) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, c.readyWait())
	defer cancel()
	for resumed := false; ; {
		if err := c.claimStart(ctx, below); err != nil {
			return err
		}
		switch state := c.model.Deployment.State; {
		case state == compute.DeploymentPaused && !resumed:
			if err := c.resume(limited); err != nil {
				return err
			}
			resumed = true
		case c.cfg.Models.Ready(c.r.View, c.model):
			return nil
		}
		view, err := c.cfg.Reader.Wait(limited, c.r.View.Index())
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return compute.Errorf(compute.CodeUnavailable, "The model is starting: none of its replicas is ready yet.").
				Named("model_starting").Retry(5 * time.Second)
		}
		c.r.View = view
	}
}

// resume starts the deployment, which is paused.
func (c *modelCall) resume(ctx context.Context) error {
	_, _, err := c.cfg.Proposer.Propose(ctx, command.ResumeDeployment{Deployment: c.model.ID})
	return c.refusedStart(err)
}

// claim finds the model, sets aside what the request may cost, and counts the request. A
// request that its payer cannot pay resumes nothing and is no load.
func (c *modelCall) claim(ctx context.Context, below string) error {
	if c.find(c.asked.Model); c.model == nil {
		return c.unknown(c.asked.Model)
	}
	if state := c.model.Deployment.State; state == compute.DeploymentStopped || state == compute.DeploymentFailed {
		return compute.Errorf(compute.CodeConflict, "The deployment is %s: start it first.", state).
			Named("deployment_" + state.String())
	}
	if err := c.reserve(ctx, below); err != nil {
		return err
	}
	if c.done == nil {
		c.answered, c.done = c.cfg.Models.Count(c.model.ID, c.cfg.Stopwatch)
	}
	return nil
}

// claimStart is claim for a model that may have to start.
func (c *modelCall) claimStart(ctx context.Context, below string) error {
	if err := c.claim(ctx, below); err != nil {
		return err
	}
	return c.startable() //nolint:contextcheck // A newer view is read as the server lives.
}

// startable refuses a request for which no replica can start: it would wait in vain.
func (c *modelCall) startable() error {
	err := c.r.View.CheckReplicas(c.model)
	if err == nil {
		return nil
	}
	if c.r.stale { // It may have been allowed meanwhile.
		if err := c.renew(); err != nil {
			return err
		}
		if c.find(c.asked.Model); c.model == nil {
			return c.unknown(c.asked.Model)
		}
		err = c.r.View.CheckReplicas(c.model)
	}
	return c.refusedStart(err)
}

// refusedStart returns the error for a deployment that may not start. Callers of a published model
// do not learn what hardware its organization may use.
func (c *modelCall) refusedStart(err error) error {
	refusal, is := errors.AsType[*compute.Error](err)
	if c.published == nil || !is || refusal.Code != compute.CodeForbidden {
		return err
	}
	return compute.Errorf(refusal.Code, "The model cannot start: the quotas of its publisher allow no replica.").
		Named(refusal.Detail)
}

// find sets the deployment that a request names as its model, by the id of a published
// model or by that of a deployment of the caller's organization; nil for none.
func (c *modelCall) find(name string) {
	c.model, c.published = nil, nil
	owner, id := c.r.Caller.Actor.Org, compute.ExecutionID{}
	published, ok := c.r.View.Model(name)
	if ok {
		owner, id = published.Org, published.Deployment
	} else if parsed, err := compute.ParseExecutionID(name); err == nil {
		id = parsed
	}
	e, known := c.r.View.Execution(owner, id)
	if !known || e.Deployment == nil || e.Status.Terminal() || e.Stop != compute.StopNone {
		return
	}
	if c.model = e; ok {
		c.published = published
	}
}

// estimate returns how many tokens the request may need.
func (c *modelCall) estimate(below string) (prompt, completion int64) {
	if c.size == 0 {
		c.size = len(c.body)
		prompt, completion = c.asked.Estimate(c.size, below)
		c.estimated = openai.Usage{Prompt: prompt, Completion: completion}
	}
	return c.estimated.Prompt, c.estimated.Completion
}

// plenty is how many answers of full length a payer can pay for whose answers nothing limits. Tokens
// beyond the hold are charged afterwards; answers of others get a limit for which the hold pays.
const plenty = 256

// reserve sets aside what a request to a published model may cost, once. An answer that the request
// does not limit gets a limit if the payer could not pay for many of its length.
func (c *modelCall) reserve(ctx context.Context, below string) (err error) {
	if c.published == nil || c.reserved != nil {
		return nil
	}
	a := &c.r.Caller.Actor
	c.estimate(below)
	payer, args := compute.Payer{Org: a.Org, User: a.User, Key: a.Key}, c.model.Inference.Args
	for !c.asked.Brief(below, c.model.Inference.Engine) {
		many := min(c.asked.Longest(below, args), compute.MaxTokens/plenty) * plenty
		if c.r.View.LacksTokens(payer, c.published.Prices.Cost(0, many).Up()) == nil || !c.asked.Lower(below, args) {
			break
		}
	}
	prompt, completion := c.asked.Most(c.size, below, args)
	c.most = openai.Usage{Prompt: prompt, Completion: c.asked.Longest(below, args)}
	c.reserved, err = c.cfg.Tokens.Reserve(ctx, payer, c.published, prompt, completion)
	return err
}

// enter waits for a place at the replicas, once.
func (c *modelCall) enter(ctx context.Context, below string) (err error) {
	if c.leave != nil {
		return nil
	}
	prompt, completion := c.estimate(below)
	begun := c.cfg.Stopwatch()
	waiting := c.models.waiting.WithLabelValues(c.label())
	waiting.Inc()
	defer waiting.Dec()
	c.leave, err = c.cfg.Models.Admit(ctx, c.r.View, c.model, c.r.Caller.Actor.Org, prompt+completion)
	c.models.queued.WithLabelValues(c.label()).Observe(c.cfg.Stopwatch().Sub(begun).Seconds())
	if err == nil {
		c.refresh()
	}
	return err
}

// refresh replaces the view by this node's newest one, with the replicas that have become ready
// while the request waited for a place: they were added for such requests.
func (c *modelCall) refresh() {
	view, _, _ := c.cfg.Reader.Stale()
	if view.Index() <= c.r.View.Index() {
		return
	}
	if e, ok := view.Execution(c.model.Org, c.model.ID); ok {
		c.r.View, c.model = view, e
	}
}
