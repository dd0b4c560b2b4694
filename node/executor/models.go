package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Launch is how the engine of a model is started.
type Launch struct {
	Argv  []string
	Env   map[string]string
	Binds []Bind
}

// Bind is a directory of the node that an engine reads.
type Bind struct{ Source, Target string }

// Models returns how the engine of a replica is started, once the model is on this
// node. Say is called with what happens meanwhile.
type Models func(ctx context.Context, w compute.Work, say func(string)) (Launch, error)

// errModel means that the model of a replica cannot be had, or not by its engine.
var errModel = errors.New("model refused")

// takeModel has the bundle of a replica start its engine, and returns the directories
// that the engine reads. The bundle is the caller's own.
func (e *Executor) takeModel(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle,
) ([]sandbox.Bind, error) {
	if w.Execution.Inference == nil {
		return nil, nil
	}
	if e.cfg.Models == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node has no engines")
	}
	// Others start meanwhile.
	<-e.starting
	defer func() { e.starting <- struct{}{} }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go e.watchStop(ctx, a, cancel)
	out := &installLog{path: filepath.Join(e.dir(a.key), supervise.OutputFile), prefix: "model", now: e.cfg.Now}
	defer out.release()
	launch, err := e.cfg.Models(ctx, w, out.line)
	switch code := compute.CodeOf(err); {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && (code == compute.CodeInvalid || code == compute.CodeNotFound):
		return nil, fmt.Errorf("%w: %w", errModel, err)
	case err != nil:
		return nil, err
	}
	bundle.Command = launch.Argv
	if bundle.Env == nil {
		bundle.Env = make(map[string]string)
	}
	maps.Copy(bundle.Env, launch.Env)
	binds := make([]sandbox.Bind, len(launch.Binds))
	for i, b := range launch.Binds {
		binds[i] = sandbox.Bind{Source: b.Source, Target: b.Target}
	}
	return binds, nil
}

// ModelDir returns the directory of the node that the engine of a live attempt has at
// target. It reports false before that is decided. It is read from the disk: attempts
// outlive the node's process.
func (e *Executor) ModelDir(id compute.ExecutionID, epoch uint64, target string) (dir string, known bool) {
	spec, err := supervise.ReadSpec(e.dir(key{id, epoch}))
	if err != nil {
		return "", false
	}
	binds := spec.Sandbox.Binds
	if spec.Container != nil {
		binds = spec.Container.Volumes
	}
	for _, b := range binds {
		if b.Target == target {
			return b.Source, true
		}
	}
	return "", false
}

// HasProgram reports whether sandboxes on this machine find a program.
func HasProgram(name string) bool {
	if filepath.IsAbs(name) {
		_, err := os.Stat(name)
		return err == nil
	}
	path, err := exec.LookPath(name)
	return err == nil && filepath.IsAbs(path)
}
