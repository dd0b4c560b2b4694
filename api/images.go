package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/distribution/reference"

	"berth/api/edge"
	"berth/api/wire"
	"berth/composefile"
	"berth/compute"
	"berth/fsm"
)

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
	ref, err := imageRef(in.Ref)
	if err != nil {
		return nil, err
	}
	python := wire.PythonStart{Start: in.Start}
	python.Bundle = in.Bundle
	if python.FileName == "" {
		python.FileName = shortImage(ref)
	}
	e, err := g.newExecution(r, &python)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.GPUTypes, e.JobType = compute.KindDocker, in.Profile(), in.Accepted(), in.JobType
	e.Container = &compute.Container{
		Images: []string{ref.String()}, Grace: time.Duration(in.GracefulTimeout) * time.Second,
	}
	if e.Storage, err = mountOf(r, &in.Mount, &in.Start, true); err != nil {
		return nil, err
	}
	command := fsm.Submit{Execution: e}
	if err := g.sealCredentials(r, in.Credentials(), &command); err != nil {
		return nil, err
	}
	result, err := g.submit(r, &compute.Bundle{Command: in.Command, Env: in.Env, User: in.User}, command)
	if err != nil {
		return nil, err
	}
	return g.started(r, result), nil
}

// started is the answer to an accepted execution.
func (g *executions) started(r *edge.Request, result fsm.Result) wire.Started {
	return wire.Started{
		ExecutionID:  result.Execution,
		Status:       result.Status,
		StreamingURL: g.streamURL(r.Base, result.Execution),
		Message:      "The execution is queued.",
	}
}

// imageRef returns the whole name of an image.
func imageRef(text string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err == nil {
		named = reference.TagNameOnly(named)
	}
	why := "not the name of an image, such as python:3.12-slim or registry.example.org/team/train:2"
	if err == nil && len(named.String()) <= compute.MaxImageName {
		if !composefile.OwnName(named) {
			return named, nil
		}
		why = composefile.ErrOwnName.Error()
	}
	f := new(wire.Faults)
	f.Value(why, "body", "docker_image_ref")
	return nil, f
}

// shortImage returns the name of an image that a record shows as its program.
func shortImage(ref reference.Named) string {
	name := reference.Path(ref)
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[i+1:]
			break
		}
	}
	if tagged, ok := ref.(reference.Tagged); ok {
		name += ":" + tagged.Tag()
	}
	return compute.Clip(name, maxShownName)
}

// sealCredentials adds what a registry asks for to a start, sealed with the data key of
// the organization.
func (g *executions) sealCredentials(r *edge.Request, c *compute.RegistryCredentials, command *fsm.Submit) error {
	if !r.Repeat {
		if err := r.View.AllowsContainers(); err != nil {
			return err
		}
	}
	if c == nil {
		return nil
	}
	org := r.Caller.Actor.Org
	key := r.View.DataKey(org)
	if key == nil {
		var err error
		if key, err = g.Config.Vault.NewKey(org); err != nil {
			return err
		}
		command.Key = key
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	e := &command.Execution
	e.Container.Key = key.Number
	e.Container.Credentials, err = g.Config.Vault.SealText(key, string(text), e.Container.Context(org, e.ID))
	return err
}

func (g *images) imageStatus(r *edge.Request) (any, error) { return g.status(r, compute.KindDocker) }

func (g *images) abortImage(r *edge.Request) (any, error) {
	return g.stop(r, compute.StopHard, compute.KindDocker)
}
