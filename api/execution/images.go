package execution

import (
	"net/http"
	"time"

	"berth/api/edge"
	"berth/api/submission"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// imaging is the path of the group.
const imaging = edge.Root + "/execution/image"

// images serves Docker Execution: programs of images, in containers.
type images struct {
	executions
}

// Routes returns the routes of the group.
func (g *images) Routes() []edge.Route {
	const tag = "Docker Execution"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: imaging + "/start", Tag: tag, Need: edge.NeedCaller,
			Summary: "Execute the program of a Docker image.",
			Large:   true, Body: edge.Type[wire.ImageStart](), Reply: edge.Type[wire.Started](), Handle: g.startImage,
		},
		{
			Method: http.MethodGet, Path: imaging + "/{id}/status", Tag: tag, Need: edge.NeedCaller,
			Summary: "The status of an execution of an image.",
			Reply:   edge.Type[wire.ExecutionStatus](), Handle: g.imageStatus,
		},
		{
			Method: http.MethodPost, Path: imaging + "/abort/{id}", Tag: tag, Need: edge.NeedCaller,
			Summary: "End an execution of an image at once.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortImage,
		},
	}
}

// startImage accepts an execution of an image.
func (g *images) startImage(r *edge.Request) (any, error) {
	in := r.Body.(*wire.ImageStart)
	ref, err := submission.ImageRef(in.Ref)
	if err != nil {
		return nil, err
	}
	python := wire.PythonStart{Start: in.Start}
	python.Bundle = in.Bundle
	if python.FileName == "" {
		python.FileName = submission.ShortImage(ref)
	}
	e, err := submission.New(g.Core, r, &python)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.GPUTypes, e.JobType = compute.KindDocker, in.Profile(), in.Accepted(), in.JobType
	e.Container = &compute.Container{
		Images: []string{ref.String()}, Grace: time.Duration(in.GracefulTimeout) * time.Second,
	}
	if e.Storage, err = submission.MountOf(r, &in.Mount, &in.Start, true); err != nil {
		return nil, err
	}
	cmd := command.Submit{Execution: e}
	if err := submission.SealCredentials(g.Core, r, in.Credentials(), &cmd); err != nil {
		return nil, err
	}
	result, err := submission.Propose(g.Core, r, &compute.Bundle{Command: in.Command, Env: in.Env, User: in.User}, cmd)
	if err != nil {
		return nil, err
	}
	return g.started(r, result), nil
}

func (g *images) imageStatus(r *edge.Request) (any, error) { return g.status(r, compute.KindDocker) }

func (g *images) abortImage(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopHard, compute.KindDocker)
}
