package deployment

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/execution"
	"berth/api/handler"
	"berth/api/submission"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

const (
	enginePort   = 8000
	progressRows = 4 // Replicas of which it is said how far their models are,
	progressWait = 2 * time.Second
)

// deployments serves Dedicated Deployment External: services with an engine.
type deployments struct {
	services
}

// Routes returns the routes of the group.
func (g *deployments) Routes() []edge.Route {
	const tag = "Dedicated Deployment External"
	const all, one = edge.Root + "/inference/deployments", edge.Root + "/inference/deployments/{id}"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/inference/create", Tag: tag, Need: edge.NeedCaller,
			Summary: "Deploy a model: replicas of an engine behind the OpenAI-compatible API of every node.",
			Body:    edge.Type[wire.DeploymentCreate](), Reply: edge.Type[wire.DeploymentCreated](), Handle: g.create,
		},
		{
			Method: http.MethodGet, Path: all, Tag: tag, Need: edge.NeedCaller,
			Summary: "The deployments, the newest first.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[wire.Deployments](), Handle: g.list,
		},
		{
			Method: http.MethodGet, Path: one, Tag: tag, Need: edge.NeedCaller,
			Summary: "A deployment with its replicas.", Reply: edge.Type[wire.Deployment](), Handle: g.get,
		},
		{
			Method: http.MethodPatch, Path: one, Tag: tag, Need: edge.NeedCaller,
			Summary: "Change a deployment. Its replicas are replaced one after the other, each once another one is ready.",
			Body:    edge.Type[wire.DeploymentUpdate](), Reply: edge.Type[wire.DeploymentCreated](), Handle: g.update,
		},
		{
			Method: http.MethodDelete, Path: one, Tag: tag, Need: edge.NeedCaller,
			Summary: "End a deployment for good. Its billing row stays.",
			Reply:   edge.Type[wire.DeploymentCreated](), Handle: g.remove,
		},
		{
			Method: http.MethodPost, Path: one + "/stop", Tag: tag, Need: edge.NeedCaller,
			Summary: "Stop a deployment until it is started.", Reply: edge.Type[wire.DeploymentCreated](), Handle: g.halt,
		},
		{
			Method: http.MethodPost, Path: one + "/start", Tag: tag, Need: edge.NeedCaller,
			Summary: "Start a deployment that is stopped, paused or has failed.",
			Reply:   edge.Type[wire.DeploymentCreated](), Handle: g.start,
		},
		{
			Method: http.MethodGet, Path: one + "/logs", Tag: tag, Need: edge.NeedCaller,
			Summary: "The newest lines that the replicas' engines printed.",
			Query:   edge.Type[wire.ExecutionLogsQuery](), Reply: edge.Type[wire.Logs](), Handle: g.logs,
		},
	}
}

// create accepts a deployment; its replicas follow.
func (g *deployments) create(r *edge.Request) (any, error) {
	in := r.Body.(*wire.DeploymentCreate)
	if !r.Repeat {
		if err := r.View.AllowsDeployments(); err != nil {
			return nil, err
		}
	}
	if !g.Config.Inference.ValidModel(in.Model) {
		return nil, compute.Errorf(compute.CodeInvalid,
			"hf_model_id is owner/name, with @revision, and with :part for one file").Named("hf_model_id")
	}
	engine, err := g.engineFor(r.View, in)
	if err != nil {
		return nil, err
	}
	args, err := g.Config.Inference.Args(engine.Name, in.Args)
	if err != nil {
		return nil, err
	}
	cmd := command.Submit{Execution: g.record(r, in, engine, args)}
	e := &cmd.Execution
	if r.View.AllowsAskedVRAM() == nil {
		e.Deployment.AskedVRAMMiB = e.MinVRAMMiB
	}
	if err := g.fits(r, in, e, 0); err != nil {
		return nil, err
	}
	if engine.Image != "" {
		ref, err := submission.ImageRef(engine.Image)
		if err != nil {
			return nil, err
		}
		e.Container = &compute.Container{Images: []string{ref.String()}}
	}
	if cmd.Key, err = g.sealToken(r, in.Token, e.ID, e.Inference); err != nil {
		return nil, err
	}
	// The node that starts a replica puts the engine's command line here.
	result, err := submission.Propose(g.Core, r, &compute.Bundle{Command: []string{"engine"}}, cmd)
	if err != nil {
		return nil, err
	}
	return wire.DeploymentCreated{
		ID: result.Execution, Status: "pending", Message: "The deployment is accepted; its replicas follow.",
	}, nil
}

// record returns the record of a new deployment.
func (g *deployments) record(
	r *edge.Request, in *wire.DeploymentCreate, engine *handler.Engine, args []string,
) compute.Execution {
	return compute.Execution{
		ID: compute.ExecutionID{UUID: g.NewID()}, Org: r.Caller.Actor.Org, User: r.Caller.Actor.User,
		Key: r.Caller.Actor.Key, Kind: compute.KindService, Name: in.Name, FileName: compute.Clip(in.Model, 200),
		Profile: profileOf(in, engine), MinVRAMMiB: int64(in.GPUVRAM) << 10, Network: compute.NetworkNone,
		Serving: &compute.Serving{
			Port: enginePort, HealthPath: engine.HealthPath, ReadinessTimeout: engine.StartLimit,
		},
		Service: &compute.Service{
			Replicas: max(in.MinReplicas, 1), BackoffFirst: g.Config.Backoff.First, BackoffMost: g.Config.Backoff.Most,
			BackoffReset: g.Config.Backoff.Reset,
		},
		Inference: &compute.Inference{Engine: engine.Name, Model: in.Model, Args: args},
		Deployment: &compute.Deployment{
			Min: in.MinReplicas, Max: in.MaxReplicas, TargetMilliRPS: max(int64(math.Round(in.TargetRPS*1000)), 1),
			TargetP95: time.Duration(in.TargetP95) * time.Millisecond, Window: time.Duration(in.Window) * time.Second,
			Starts: g.Config.Inference.Starts,
		},
	}
}

// profileOf returns the hardware profile of each replica.
func profileOf(in *wire.DeploymentCreate, engine *handler.Engine) string {
	kind := strings.TrimPrefix(strings.ToLower(in.GPUType), "gpu.")
	switch {
	case kind == "cpu" || kind == "" && !engine.GPU && in.GPUVRAM == 0:
		return "cpu"
	case kind == "":
		kind = compute.AnyGPU
	}
	if in.GPUCount > 1 && !strings.Contains(kind, ".") {
		kind += "." + strconv.Itoa(in.GPUCount) + "x"
	}
	return "gpu." + kind
}

// engineFor returns the engine that a deployment names, or the first that nodes have:
// those for GPUs first, unless it asks for none.
func (g *deployments) engineFor(view *fsm.View, in *wire.DeploymentCreate) (*handler.Engine, error) {
	list := g.Config.Inference.Engines
	var names []string
	for i := range list {
		if list[i].Name == in.Engine {
			return &list[i], nil
		}
		names = append(names, list[i].Name)
	}
	if in.Engine != "" {
		return nil, compute.Errorf(compute.CodeInvalid, "there is no engine %q; there are: %s", in.Engine,
			strings.Join(names, ", ")).Named("unknown_engine")
	}
	offered := make(map[compute.Offer]bool)
	for n := range view.Nodes() {
		for _, offer := range n.Offers {
			offered[offer] = true
		}
	}
	best := defaultEngine(list, offered, strings.EqualFold(in.GPUType, "cpu"))
	if best == nil {
		return nil, compute.Errorf(compute.CodeInvalid, "no node has an engine for models: install one of %s",
			strings.Join(names, ", ")).Named("unknown_engine")
	}
	return best, nil
}

// defaultEngine returns the engine of a deployment that names none: vLLM if a node has it
// and the deployment may have a GPU, else the first that a node has. It is nil for none.
func defaultEngine(list []handler.Engine, offered map[compute.Offer]bool, noGPU bool) (best *handler.Engine) {
	for i := range list {
		e := &list[i]
		if !offered[compute.InferenceOffer(e.Name)] || noGPU && e.GPU {
			continue
		}
		if best == nil || e.Name == "vllm" {
			best = e
		}
	}
	return best
}

// sealToken adds the token for the hub to the model of a deployment, sealed with the data
// key of the organization. It returns that key if the organization had none.
func (g *deployments) sealToken(
	r *edge.Request, token string, id compute.ExecutionID, model *compute.Inference,
) (first *compute.DataKey, err error) {
	if token == "" || r.Repeat {
		return nil, nil
	}
	org := r.Caller.Actor.Org
	key := r.View.DataKey(org)
	if key == nil {
		if key, err = g.Config.Vault.NewKey(org); err != nil {
			return nil, err
		}
		first = key
	}
	model.Key = key.Number
	model.Token, err = g.Config.Vault.SealText(key, token, compute.TokenContext(org, id))
	return first, err
}

// findDeployment returns the deployment in the path. One that was deleted is not
// found.
func (g *deployments) findDeployment(r *edge.Request) (*compute.Execution, error) {
	e, err := g.Find(r, compute.KindService)
	if err != nil {
		return nil, err
	}
	gone := e.Status == compute.StatusCancelled || e.Status == compute.StatusAborted || e.Stop != compute.StopNone
	if e.Deployment == nil || gone {
		return nil, edge.NotFound()
	}
	return e, nil
}

// list answers a page of the caller's deployments.
func (g *deployments) list(r *edge.Request) (any, error) {
	var all []*compute.Execution
	for e := range r.View.Live(r.Caller.Actor.Org) {
		if e.Deployment != nil && e.Stop == compute.StopNone {
			all = append(all, e)
		}
	}
	page, err := handler.Paged(r, all, newestFirst)
	if err != nil {
		return nil, err
	}
	out := wire.Deployments{Deployments: []wire.Deployment{}, Total: len(all)}
	for _, e := range page {
		out.Deployments = append(out.Deployments, g.deploymentOf(r, r.View, e))
	}
	return out, nil
}

// get answers one deployment.
func (g *deployments) get(r *edge.Request) (any, error) {
	e, err := g.findDeployment(r)
	if err != nil {
		return nil, err
	}
	out := g.deploymentOf(r, r.View, e)
	g.addProgress(r.Ctx, out.Rows)
	out.EngineOutput = append(out.EngineOutput, execution.LastLines(r.Ctx, g.Config.Logs, e)...)
	return out, nil
}

// modelLine begins the lines in which the node of a replica says how it gets the model.
const modelLine = "model: "

// addProgress says of replicas whose engines have not started how far their models are.
func (g *deployments) addProgress(ctx context.Context, rows []wire.ServiceReplica) {
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	asked := 0
	for i := range rows {
		row := &rows[i]
		if row.Detail != nil || row.StartTime != nil || row.Node == nil || asked == progressRows {
			continue
		}
		asked++
		found, err := g.Config.Logs.Search(ctx, row.ExecutionID, handler.LogQuery{Text: modelLine, Limit: 1})
		for _, line := range found.Lines {
			if text, is := strings.CutPrefix(string(line.Text), modelLine); err == nil && is && line.Stream == "system" {
				row.Detail = &text
			}
		}
	}
}

// deploymentOf returns a deployment as sent to clients.
func (g *deployments) deploymentOf(r *edge.Request, view *fsm.View, e *compute.Execution) wire.Deployment {
	d := e.Deployment
	out := wire.Deployment{
		ID: e.ID, Name: wire.OrNull(e.Name), Detail: wire.OrNull(e.Detail),
		Model: e.Inference.Model, Engine: e.Inference.Engine,
		Args: append([]string{}, e.Inference.Args...), Profile: e.Profile,
		TargetRPS: float64(d.TargetMilliRPS) / 1000, TargetP95: d.TargetP95.Milliseconds(),
		Window:      int64(d.Window / time.Second),
		MinReplicas: d.Min, MaxReplicas: d.Max, Replicas: e.Service.Replicas, CreatedAt: e.CreatedAt, Billed: e.Billed,
		BaseURL: r.Base + edge.ModelRoot, EngineOutput: []string{}, Rows: execution.ReplicasOf(view, e),
	}
	for _, row := range out.Rows {
		if row.Ready {
			out.Ready++
		}
	}
	if next := d.Next; next != nil {
		out.Update = &wire.PendingUpdate{Model: next.Model, Args: append([]string{}, next.Args...)}
	}
	out.Status = deploymentStatus(view, e, out.Ready)
	return out
}

// deploymentStatus returns the status of a deployment of which so many replicas are
// ready.
func deploymentStatus(view *fsm.View, e *compute.Execution, ready int) string {
	switch d := e.Deployment; {
	case e.Status.Terminal():
		return compute.DeploymentFailed.String()
	case d.State != compute.DeploymentActive:
		return d.State.String()
	case ready > 0 && ready == e.Service.Replicas && !e.Service.Surge && !view.Outdated(e):
		return "ready"
	case ready > 0:
		return "scaling"
	case e.Service.Live > 0 && slices.ContainsFunc(e.Service.Slots, func(s compute.Slot) bool { return s.Live }):
		return "starting"
	}
	return "pending"
}

// remove ends a deployment.
func (g *deployments) remove(r *edge.Request) (any, error) {
	if !r.Repeat {
		if _, err := g.findDeployment(r); err != nil {
			return nil, err
		}
	}
	answer, err := g.services.deleteService(r)
	if err != nil {
		return nil, err
	}
	id := cmp.Or(answer.(wire.Stopped).ExecutionID, r.First.Execution)
	return wire.DeploymentCreated{ID: id, Status: "stopped", Message: "The deployment ends."}, nil
}

func (g *deployments) halt(r *edge.Request) (any, error) {
	return g.change(r, false, "The deployment is stopped.")
}

func (g *deployments) start(r *edge.Request) (any, error) {
	return g.change(r, true, "The deployment starts.")
}

// change stops or starts a deployment.
func (g *deployments) change(r *edge.Request, start bool, message string) (any, error) {
	e, err := g.findDeployment(r)
	if err != nil {
		return nil, err
	}
	if _, err := g.ProposeAndSee(r, command.ChangeDeployment{
		Op: g.Op(r), Actor: r.Caller.Actor, Deployment: e.ID, Start: start,
	}); err != nil {
		return nil, err
	}
	if now, ok := r.View.Execution(e.Org, e.ID); ok {
		e = now
	}
	return wire.DeploymentCreated{ID: e.ID, Status: g.deploymentOf(r, r.View, e).Status, Message: message}, nil
}

// logs answers lines of the engines.
func (g *deployments) logs(r *edge.Request) (any, error) {
	if _, err := g.findDeployment(r); err != nil {
		return nil, err
	}
	return execution.Logs(g.Core, r)
}
