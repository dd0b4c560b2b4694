package deployment

import (
	"fmt"
	"math"
	"net/http"
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

// serving is the path of the group.
const serving = edge.Root + "/execution/service"

// services serves services: executions that run until they are deleted and answer
// requests.
type services struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *services) Routes() []edge.Route {
	const all, one = edge.Root + "/services", edge.Root + "/services/{id}"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: serving + "/start", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Start a service: a program that answers requests on a port, without a time limit. timeout is not used.",
			Large:   true, Body: edge.Type[wire.ServiceStart](), Reply: edge.Type[wire.ServiceStarted](), Handle: g.startService,
		},
		{
			Method: http.MethodGet, Path: all, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The services that have not ended, the newest first.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Service](), Handle: g.listServices,
		},
		{
			Method: http.MethodGet, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "A service with its replicas.",
			Reply:   edge.Type[wire.Service](), Handle: g.getService,
		},
		{
			Method: http.MethodDelete, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "End a service: its replicas get SIGTERM, and after the grace SIGKILL. Its record stays.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.deleteService,
		},
		{
			Method: http.MethodPost, Path: one + "/scale", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Change how many replicas of a service run.",
			Body:    edge.Type[wire.ServiceScale](), Reply: edge.Type[wire.Service](), Handle: g.scaleService,
		},
	}
}

// startService accepts a service: the replicas follow.
func (g *services) startService(r *edge.Request) (any, error) {
	in := r.Body.(*wire.ServiceStart)
	if err := submission.Available(r, &in.PythonStart); err != nil {
		return nil, err
	}
	if !r.Repeat {
		if err := r.View.AllowsServices(); err != nil {
			return nil, err
		}
	}
	e, err := submission.New(g.Core, r, &in.PythonStart)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.Timeout, e.MaxRetries = compute.KindService, in.Profile(), 0, 0
	e.GPUTypes = in.Accepted()
	e.Service = &compute.Service{
		Replicas:     in.Replicas,
		BackoffFirst: g.Config.Backoff.First, BackoffMost: g.Config.Backoff.Most, BackoffReset: g.Config.Backoff.Reset,
	}
	if err := e.Service.Restart.UnmarshalText([]byte(in.Restart)); err != nil {
		return nil, err
	}
	e.Serving = &compute.Serving{
		Port: in.Port, HealthPath: in.HealthPath, ReadinessTimeout: time.Duration(in.ReadinessTimeout) * time.Second,
	}
	result, err := g.submitReplicas(r, in, e)
	if err != nil {
		return nil, err
	}
	return wire.ServiceStarted{
		ExecutionID: result.Execution, Status: result.Status, URL: g.serviceURL(r, result.Execution),
		Message: "The service is accepted; its replicas follow.",
	}, nil
}

// submitReplicas submits a service of code, or of an image.
func (g *services) submitReplicas(r *edge.Request, in *wire.ServiceStart, e compute.Execution) (command.Result, error) {
	if in.DockerImageRef == "" {
		return submission.ProposeCode(g.Core, r, &in.PythonStart, e)
	}
	cmd, bundle := command.Submit{Execution: e}, submission.BundleOf(&in.PythonStart)
	if err := g.inImage(r, in, &cmd); err != nil {
		return command.Result{}, err
	}
	bundle.User = in.User
	return submission.Propose(g.Core, r, bundle, cmd)
}

// inImage has the replicas of a service execute the program of an image.
func (g *services) inImage(r *edge.Request, in *wire.ServiceStart, cmd *command.Submit) error {
	ref, err := submission.ImageRef(in.DockerImageRef)
	if err != nil {
		return err
	}
	e := &cmd.Execution
	e.Container = &compute.Container{Images: []string{ref.String()}}
	if e.FileName == "" {
		e.FileName = submission.ShortImage(ref)
	}
	return submission.SealCredentials(g.Core, r, in.Credentials(), cmd)
}

// serviceURL returns where a service is reached.
func (g *services) serviceURL(r *edge.Request, id compute.ExecutionID) string {
	base := r.Base
	if g.Config.ServicesURL != "" {
		base = strings.TrimRight(g.Config.ServicesURL, "/")
	}
	return base + edge.ServiceRoot + id.String() + "/"
}

// listServices answers a page of the caller's services.
func (g *services) listServices(r *edge.Request) (any, error) {
	var all []*compute.Execution
	for e := range r.View.Live(r.Caller.Actor.Org) {
		if e.Kind == compute.KindService {
			all = append(all, e)
		}
	}
	page, err := handler.Paged(r, all, newestFirst)
	if err != nil {
		return nil, err
	}
	out := []wire.Service{}
	for _, e := range page {
		out = append(out, g.serviceOf(r, r.View, e))
	}
	return out, nil
}

// getService answers one service.
func (g *services) getService(r *edge.Request) (any, error) {
	e, err := g.Find(r, compute.KindService)
	if err != nil {
		return nil, err
	}
	return g.serviceOf(r, r.View, e), nil
}

// deleteService ends a service.
func (g *services) deleteService(r *edge.Request) (any, error) {
	return execution.Stop(g.Core, r, compute.StopGraceful, compute.KindService)
}

// scaleService changes how many replicas are wanted.
func (g *services) scaleService(r *edge.Request) (any, error) {
	e, err := g.Find(r, compute.KindService)
	if err != nil {
		return nil, err
	}
	if _, err := g.ProposeAndSee(r, command.ScaleService{
		Op: g.Op(r), Actor: r.Caller.Actor, Service: e.ID, Replicas: r.Body.(*wire.ServiceScale).Replicas,
	}); err != nil {
		return nil, err
	}
	if now, ok := r.View.Execution(e.Org, e.ID); ok {
		e = now
	}
	return g.serviceOf(r, r.View, e), nil
}

// serviceOf returns a service as sent to clients.
func (g *services) serviceOf(r *edge.Request, view *fsm.View, e *compute.Execution) wire.Service {
	out := wire.Service{
		ExecutionID: e.ID, Name: wire.OrNull(e.Name), Status: e.Status, StatusDetails: wire.OrNull(e.Reason.String()),
		Detail: wire.OrNull(e.Detail), URL: g.serviceURL(r, e.ID), HardwareProfile: e.Profile,
		Port: e.Serving.Port, HealthPath: e.Serving.HealthPath, Restart: e.Service.Restart.String(),
		Replicas: e.Service.Replicas, CreatedAt: e.CreatedAt, Billed: e.Billed, Rows: execution.ReplicasOf(view, e),
	}
	for _, row := range out.Rows {
		if row.Ready {
			out.Ready++
		}
	}
	return out
}

// newestFirst returns the place of an execution behind those that were accepted after it.
func newestFirst(e **compute.Execution) string {
	return fmt.Sprintf("%020d %s", math.MaxUint64-(*e).SubmitIndex, (*e).ID)
}
