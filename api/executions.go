package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// executions serves Streaming Execution and Execution Management. The groups of
// other kinds of executions embed it.
type executions struct {
	*handler.Core

	ended   endedCache
	endings *endings
}

// newExecutions returns what the groups of executions of a server share.
func newExecutions(c *handler.Core) executions {
	return executions{c, newEndedCache(), &endings{all: map[compute.ExecutionID]*awaited{}}}
}

// Routes returns the routes of the group.
func (g *executions) Routes() []edge.Route {
	const one = edge.Root + "/execution/{id}"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: streaming + "/start", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "Execute Python code.",
			Large:   true, Body: edge.Type[wire.PythonStart](), Reply: edge.Type[wire.Started](), Handle: g.startPython,
		},
		{
			Method: http.MethodGet, Path: streaming + "/{id}/status", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "The status of an execution.",
			Reply:   edge.Type[wire.ExecutionStatus](), Handle: g.pythonStatus,
		},
		{
			Method: http.MethodPost, Path: streaming + "/abort/{id}", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "End an execution at once.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortPython,
		},
		{
			Method: http.MethodGet, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The whole record of an execution. With wait, the answer is held until it changes or ends.",
			Query:   edge.Type[wire.ExecutionQuery](), Reply: edge.Type[wire.Execution](), Handle: g.getExecution,
		},
		{
			Method: http.MethodDelete, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Remove the code and the output of an execution that has ended. Its billing row stays.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.deleteExecution,
		},
		{
			Method: http.MethodGet, Path: one + "/timing", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The time that an execution spent in each phase.",
			Reply:   edge.Type[wire.TimingAnswer](), Handle: g.getTiming,
		},
		{
			Method: http.MethodGet, Path: one + "/explain", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Explain an execution: nodes by typed reason, position in the queue, start estimate," +
				" and why it was placed where it is.",
			Query: edge.Type[wire.ExplainQuery](), Reply: edge.Type[wire.Explanation](), Handle: g.explain,
		},
	}
}

// startPython accepts a Python execution.
func (g *executions) startPython(r *edge.Request) (any, error) {
	in := r.Body.(*wire.PythonStart)
	if err := g.available(r, in); err != nil {
		return nil, err
	}
	e, err := g.newExecution(r, in)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.GPUTypes = compute.KindPython, in.Profile(), in.Accepted()
	if e.Storage, err = mountOf(r, &in.Mount, &in.Start, false); err != nil {
		return nil, err
	}
	result, err := g.submitCode(r, in, e)
	if err != nil {
		return nil, err
	}
	return g.started(r, result), nil
}

// available refuses what a server of the cluster does not know yet.
func (g *executions) available(r *edge.Request, in *wire.PythonStart) error {
	if in.NBCode > 0 && !r.Repeat {
		if err := r.View.AllowsCells(); err != nil {
			return err
		}
	}
	if in.Environment != "" && !r.Repeat {
		if err := r.View.AllowsEnvironments(); err != nil {
			return err
		}
	}
	if in.Outputs != "" && !r.Repeat {
		if err := cmp.Or(r.Caller.Allows(compute.ScopeStorage), r.View.AllowsOutputsPrefix()); err != nil {
			return err
		}
	}
	plain := in.Code != "" && in.Name == "" && in.Bundle == "" && len(in.Args) == 0 && len(in.Input) == 0
	if !plain && !r.Repeat {
		return r.View.AllowsPrograms()
	}
	return nil
}

// newExecution returns the requested record. Apply fills fields that depend on
// the state.
func (g *executions) newExecution(r *edge.Request, in *wire.PythonStart) (compute.Execution, error) {
	e := compute.Execution{
		ID:              compute.ExecutionID{UUID: g.NewID()},
		Org:             r.Caller.Actor.Org,
		User:            r.Caller.Actor.User,
		Key:             r.Caller.Actor.Key,
		Name:            in.Name,
		Environment:     compute.EnvironmentRef{Name: in.Environment},
		FileName:        shownName(in),
		Timeout:         time.Duration(in.Timeout) * time.Second,
		DisconnectGrace: time.Duration(in.DisconnectGrace) * time.Second,
		Priority:        in.Priority,
		Tags:            in.Tags,
		CallbackURLs:    in.CallbackURLs,
		MaxCredits:      in.MaxCredits,
		Preemptible:     in.Preemptible,
		MaxRetries:      in.MaxRetries,
		MinVRAMMiB:      int64(in.MinVRAMGB) << 10,
		MinCapability:   in.Capability(),
		OutputsPrefix:   in.Outputs,
	}
	if in.Bundle != "" {
		id, err := compute.ParseBundleID(in.Bundle)
		if err != nil {
			return e, errNoBundle()
		}
		e.Files = &compute.Files{Bundle: id}
		if err := g.checkScript(r, in, id); err != nil {
			return e, err
		}
	}
	r.View.RecordImports(&e, slices.Sorted(maps.Keys(in.Files)))
	in.SetOn(&e)
	if in.Network == compute.NetworkNone.String() {
		e.Network = compute.NetworkNone
	}
	return e, nil
}

// mountOf returns how an execution sees the stored files, nil if it does not. Where the
// start does not say, it does by default or not, and then is not refused for it.
func mountOf(r *edge.Request, in *wire.Mount, start *wire.Start, standard bool) (*compute.StorageMount, error) {
	wanted, said := in.Asked(start, standard)
	if !wanted {
		return nil, nil
	}
	refusal := r.Caller.Allows(compute.ScopeStorage)
	if refusal == nil && !r.Repeat {
		refusal = r.View.AllowsMounts()
	}
	if refusal != nil && said {
		return nil, refusal
	}
	if refusal != nil {
		return nil, nil //nolint:nilerr // Nobody asked for it.
	}
	return &compute.StorageMount{Path: in.S3MountPath, Optional: !said}, nil
}

// checkScript refuses a script that is not a file of the bundle.
func (g *executions) checkScript(r *edge.Request, in *wire.PythonStart, id compute.BundleID) error {
	if in.Script == "" || r.Repeat {
		return nil
	}
	u, ok := r.View.Upload(r.Caller.Actor.Org, id)
	if !ok {
		return errNoBundle()
	}
	tree, err := g.Config.Trees.Tree(r.Ctx, u.Manifest)
	if err != nil {
		return err
	}
	if e, ok := tree.Entry(in.Script); !ok || e.Dir {
		return compute.Errorf(compute.CodeInvalid, "The bundle has no file %q.", in.Script).Named("no_script")
	}
	return nil
}

// shownName returns the name of the file for the record: the client's, or else
// that of the script, module or program.
func shownName(in *wire.PythonStart) string {
	name := cmp.Or(in.FileName, in.Script, in.Module)
	if name == "" && len(in.Command) > 0 {
		name = in.Command[0]
	}
	name = path.Base(name)
	if name == "." || len(name) > maxShownName || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// maxShownName limits names that clients did not give as such, in bytes.
const maxShownName = 255

// submit stores the bundle and proposes an execution. A repeat gets the first answer.
func (g *executions) submit(r *edge.Request, bundle *compute.Bundle, command fsm.Submit) (fsm.Result, error) {
	if r.Repeat {
		return r.First, nil
	}
	command.Op, command.Actor = g.Op(r), r.Caller.Actor
	var err error
	command.Execution.Bundle, err = g.storeBundle(r.Ctx, bundle, func() error { return r.View.CheckSubmit(command) })
	if err != nil {
		return fsm.Result{}, err
	}
	return g.Propose(r, command)
}

// submitCode submits an execution of the code and the files of a start, with the stored
// files that it imports.
func (g *executions) submitCode(r *edge.Request, in *wire.PythonStart, e compute.Execution) (fsm.Result, error) {
	if r.Repeat {
		return r.First, nil
	}
	stored, err := g.storedImports(r, in)
	if err != nil {
		return fsm.Result{}, err
	}
	bundle := bundleOf(in)
	bundle.StoredFiles = stored
	return g.submit(r, bundle, fsm.Submit{Execution: e})
}

// bundleOf returns the code and the files of a start.
func bundleOf(in *wire.PythonStart) *compute.Bundle {
	return &compute.Bundle{
		Code: in.Code, FileName: in.FileName, ImportFiles: in.Files,
		PriorImports: in.PriorImports, Env: in.Env, Requirements: in.Requirements,
		Module: in.Module, Command: in.Command, Script: in.Script, Args: in.Args, Stdin: in.Input,
		Cell: in.NBCode, KernelState: in.KernelState,
	}
}

// storeBundle encodes code and files. A bundle too large for a command is
// durable on other nodes when it returns. Large code and files are encoded and
// stored if check returns nil.
func (g *executions) storeBundle(
	ctx context.Context, bundle *compute.Bundle, check func() error,
) (compute.BundleRef, error) {
	if textBytes(bundle) > compute.MaxInlineBundle || len(bundle.StoredFiles) > 0 {
		if err := check(); err != nil {
			return compute.BundleRef{}, err // Refused starts take no memory for it.
		}
	}
	data, err := bundle.Encode()
	if err != nil {
		return compute.BundleRef{}, err
	}
	ref := compute.BundleRef{Hash: sha256.Sum256(data), Size: int64(len(data))}
	if len(data) <= compute.MaxInlineBundle {
		ref.Inline = data
		return ref, nil
	}
	if err := check(); err != nil {
		return compute.BundleRef{}, err // Refused starts fill no disk.
	}
	ref.Hash, err = g.Config.Blobs.Put(ctx, data)
	return ref, err
}

// textBytes returns the length of the code and its files.
func textBytes(bundle *compute.Bundle) int {
	sum := len(bundle.Code) + len(bundle.Stdin) + len(bundle.KernelState) + len(bundle.Compose)
	for name, text := range bundle.ImportFiles {
		sum += len(name) + len(text)
	}
	return sum
}

// streamingKinds are the kinds behind the path segment "streaming".
func streamingKinds() []compute.Kind {
	return []compute.Kind{compute.KindPython, compute.KindSubSelection}
}

func (g *executions) pythonStatus(r *edge.Request) (any, error) {
	return g.status(r, streamingKinds()...)
}

func (g *selections) selectionStatus(r *edge.Request) (any, error) {
	return g.status(r, compute.KindSelection)
}

// status answers the status of an execution.
func (g *executions) status(r *edge.Request, kinds ...compute.Kind) (any, error) {
	e, err := g.FindWith(r, (*fsm.View).Status, kinds...)
	if err != nil {
		return nil, err
	}
	return wire.ExecutionStatus{ExecutionID: e.ID, Status: e.Status, Errors: errorsOf(e)}, nil
}

func (g *executions) abortPython(r *edge.Request) (any, error) {
	return g.stop(r, compute.StopHard, streamingKinds()...)
}

func (g *selections) abortSelection(r *edge.Request) (any, error) {
	return g.stop(r, compute.StopHard, compute.KindSelection)
}

// deleteExecution removes the code and the output of an execution.
func (g *executions) deleteExecution(r *edge.Request) (any, error) {
	if r.Repeat {
		// The first proposer may have ended before it deleted the output.
		ids := []compute.ExecutionID{r.First.Execution}
		for _, child := range r.View.Children(r.First.Execution) {
			ids = append(ids, child.ID)
		}
		g.deleteOutput(r, ids)
		return deleted(r.First), nil
	}
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	if r.View.FromArchive(e.ID) {
		return nil, errArchived(e)
	}
	if !e.Status.Terminal() {
		return nil, compute.Errorf(compute.CodeConflict,
			"The execution is %s; only one that has ended can be deleted.", e.Status).Named("not_terminal")
	}
	result, err := g.Propose(r, fsm.DeleteExecution{Op: g.Op(r), Actor: r.Caller.Actor, Execution: e.ID})
	if err != nil {
		return nil, g.orArchived(r, err, errArchived)
	}
	ids := []compute.ExecutionID{e.ID}
	ids = append(ids, e.Children()...)
	g.deleteOutput(r, ids)
	return deleted(result), nil
}

// deleteOutput removes the output of executions whose records are gone. Output
// on nodes that do not answer is unreachable; those nodes prune it later.
func (g *executions) deleteOutput(r *edge.Request, ids []compute.ExecutionID) {
	for _, id := range ids {
		if err := g.Config.Logs.Delete(r.Ctx, id); err != nil {
			r.Log(g.Log).Warn("output not deleted", "execution", id, "err", err)
		}
	}
}

// deleted is the answer to a deletion.
func deleted(result fsm.Result) wire.Stopped {
	return wire.Stopped{
		ExecutionID: result.Execution, Status: result.Status,
		Message: "The code and the output are deleted. The billing row stays.",
	}
}

// getTiming answers how long an execution was in each phase.
func (g *executions) getTiming(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	return wire.TimingAnswer{Timing: timingOf(e, r.View.Now())}, nil
}

// timingOf returns the phases of e up to now.
func timingOf(e *compute.Execution, now compute.Instant) wire.Timing {
	end := now
	if e.Status.Terminal() {
		end = e.FinishedAt
	}
	or := func(at, other compute.Instant) compute.Instant {
		if at.IsZero() {
			return other
		}
		return at
	}
	exited := or(e.EndedAt, end)
	started := or(e.StartedAt, exited)
	placed := or(e.PlacedAt, started)
	t := wire.Timing{
		Queued:   seconds(placed.Sub(e.CreatedAt)),
		Starting: seconds(started.Sub(placed)),
		Running:  seconds(exited.Sub(started)),
		Total:    seconds(end.Sub(e.CreatedAt)),
	}
	if e.Ran && e.Duration > 0 {
		t.Running = seconds(e.Duration)
	}
	return t
}

// seconds returns d in seconds, to the millisecond, at least 0: the instants
// come from different clocks.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }
