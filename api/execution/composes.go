package execution

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	"berth/api/edge"
	"berth/api/submission"
	"berth/api/wire"
	"berth/composefile"
	"berth/compute"
	"berth/fsm/command"
)

// composing is the path of the group.
const composing = edge.Root + "/execution/compose"

// composes serves Docker Compose Execution: the services of a Compose file together.
type composes struct {
	executions
}

// Routes returns the routes of the group.
func (g *composes) Routes() []edge.Route {
	const tag = "Docker Compose Execution"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: composing + "/start", Tag: tag, Need: edge.NeedCaller,
			Summary: "Execute the services of a Compose file together, on one node.",
			Large:   true, Body: edge.Type[wire.ComposeStart](), Reply: edge.Type[wire.Started](), Handle: g.startCompose,
		},
		{
			Method: http.MethodPost, Path: composing + "/complete/{id}", Tag: tag, Need: edge.NeedCaller, Bare: true,
			Summary: "Report the end of an execution that the client has watched. One that lives is asked to end; " +
				"one that has ended stays as it is.",
			Body: edge.Type[wire.ComposeComplete](), Reply: edge.Type[wire.Stopped](), Handle: g.completeCompose,
		},
		{
			Method: http.MethodGet, Path: composing + "/{id}/status", Tag: tag, Need: edge.NeedCaller,
			Summary: "The status of an execution of a Compose file.",
			Reply:   edge.Type[wire.ExecutionStatus](), Handle: g.composeStatus,
		},
		{
			Method: http.MethodPost, Path: composing + "/abort/{id}", Tag: tag, Need: edge.NeedCaller,
			Summary: "End an execution of a Compose file at once.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortCompose,
		},
	}
}

// startCompose accepts an execution of a Compose file.
func (g *composes) startCompose(r *edge.Request) (any, error) {
	in := r.Body.(*wire.ComposeStart)
	file, err := readCompose(in)
	if err != nil {
		return nil, err
	}
	python := wire.PythonStart{Start: in.Start}
	if python.FileName == "" {
		python.FileName = "compose.yaml"
	}
	e, err := submission.New(g.Core, r, &python)
	if err != nil {
		return nil, err
	}
	e.Kind, e.GPUTypes, e.JobType = compute.KindCompose, in.Accepted(), in.JobType
	if e.Profile, err = gangProfile(in, file); err != nil {
		return nil, err
	}
	e.Container = &compute.Container{
		Images: file.Images(), Grace: time.Duration(in.GracefulTimeout) * time.Second,
	}
	if e.Storage, err = submission.MountOf(r, &in.Mount, &in.Start, false); err != nil {
		return nil, err
	}
	if err := freePaths(&e, file); err != nil {
		return nil, err
	}
	cmd := command.Submit{Execution: e}
	if err := submission.SealCredentials(g.Core, r, in.Credentials(), &cmd); err != nil {
		return nil, err
	}
	result, err := submission.Propose(g.Core, r, &compute.Bundle{Compose: in.File, Env: in.Env}, cmd)
	if err != nil {
		return nil, err
	}
	return g.started(r, result), nil
}

// readCompose returns the Compose file of a start. Each refused part of it is a fault
// with its line and column.
func readCompose(in *wire.ComposeStart) (*composefile.File, error) {
	file, faults := composefile.Parse(in.File, in.Env)
	f := new(wire.Faults)
	for _, refused := range faults {
		loc := []any{"body", "compose_file_code"}
		if refused.Line > 0 {
			loc = append(loc, refused.Line, refused.Column)
		}
		f.Value(refused.Error(), loc...)
	}
	if len(faults) > 0 {
		return nil, f
	}
	return file, nil
}

// freePaths refuses volumes of a file that are in the way of what the execution mounts in
// all of its services.
func freePaths(e *compute.Execution, file *composefile.File) error {
	var mounted []string
	for _, v := range e.Volumes {
		mounted = append(mounted, cmp.Or(v.Path, path.Join(compute.VolumesDir, v.Name)))
	}
	if e.Storage != nil {
		mounted = append(mounted, e.Storage.Path)
	}
	f := new(wire.Faults)
	bad := false
	for _, target := range file.Targets() {
		if slices.ContainsFunc(mounted, func(m string) bool { return compute.PathsOverlap(target, m) }) {
			f.Value(fmt.Sprintf("a service has a volume at %s, which is in the way of a volume or of stored files", target),
				"body", "compose_file_code")
			bad = true
		}
	}
	if bad {
		return f
	}
	return nil
}

// gangSizes are the numbers of GPUs that profiles have.
func gangSizes() []int { return []int{1, 2, 4, 8} }

// gangProfile returns the hardware profile of a Compose file: the GPUs that its services
// reserve are one gang, on one node.
func gangProfile(in *wire.ComposeStart, file *composefile.File) (string, error) {
	count, all := file.GPUs()
	asked := in.Profile()
	if count == 0 && !all {
		return asked, nil
	}
	if !in.NamesProfile() && len(in.GPUTypes) == 0 {
		asked = "gpu." + compute.AnyGPU
	}
	p, err := compute.ParseProfile(asked)
	if err != nil {
		return asked, nil //nolint:nilerr // The state says which profiles there are.
	}
	size := slices.IndexFunc(gangSizes(), func(n int) bool { return n >= count })
	var why string
	switch {
	case !p.IsGPU():
		why = "its services reserve GPUs: execution_type names a type of GPU, such as gpu.a100"
	case p.Count > 1 && count > p.Count || size < 0:
		why = fmt.Sprintf("its services reserve %d GPUs, more than execution_type has, or than one execution gets", count)
	case p.Count == 1 && count > 1:
		p.Count = gangSizes()[size]
		return p.String(), nil
	default:
		return asked, nil
	}
	f := new(wire.Faults)
	f.Value(why, "body", "compose_file_code")
	return "", f
}

// completeCompose records what the client says about the end of an execution.
func (g *composes) completeCompose(r *edge.Request) (any, error) {
	if r.Repeat {
		return stopped(r.First), nil
	}
	e, err := g.Find(r, compute.KindCompose)
	if err != nil {
		return nil, err
	}
	if r.View.FromArchive(e.ID) {
		return stopped(command.Result{Execution: e.ID, Status: e.Status}), nil
	}
	reported := compute.Reported{}
	if in, ok := r.Body.(*wire.ComposeComplete); ok && in != nil {
		reported.Output = in.Output
		if in.ReturnCode != nil {
			reported.Exited, reported.ReturnCode = true, int64(*in.ReturnCode)
		}
		if in.Status != "" {
			if err := reported.Status.UnmarshalText([]byte(in.Status)); err != nil {
				return nil, err
			}
		}
	}
	result, err := g.Propose(r, command.CompleteExecution{
		Op: g.Op(r), Actor: r.Caller.Actor, Execution: e.ID, Reported: reported,
	})
	if err != nil {
		return nil, err
	}
	return stopped(result), nil
}

func (g *composes) composeStatus(r *edge.Request) (any, error) {
	return g.status(r, compute.KindCompose)
}

func (g *composes) abortCompose(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopHard, compute.KindCompose)
}
