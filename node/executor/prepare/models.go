package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/sandbox"
)

// Launch is how the engine of a model is started.
type Launch struct {
	Argv  []string
	Env   map[string]string
	Binds []Bind
}

// Bind is a directory of the node that an engine reads.
type Bind struct{ Source, Target string }

// Path returns where this node finds a program by its own PATH, "" for nowhere.
func (p *Programs) Path(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// Models returns how the engine of a replica is started, once the model is on this
// node. Say is called with what happens meanwhile.
type Models func(ctx context.Context, w compute.Work, say func(string)) (Launch, error)

// ErrModel means that the model of a replica cannot be had, or not by its engine.
var ErrModel = errors.New("model refused")

// takeModel has the bundle of a replica start its engine, and returns the directories
// that the engine reads. The bundle is the caller's own.
func (p *Preparer) takeModel(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle,
) ([]sandbox.Bind, error) {
	if w.Execution.Inference == nil {
		return nil, nil
	}
	if p.cfg.Models == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node has no engines")
	}
	ctx, wait := p.turns.Wait(ctx, a, "model")
	defer wait.End()
	launch, err := p.cfg.Models(ctx, w, wait.Report)
	switch code := compute.CodeOf(err); {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && (code == compute.CodeInvalid || code == compute.CodeNotFound):
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
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

// Programs finds programs as the sandboxes of a node do.
type Programs struct {
	shown  []string       // Every sandbox has them.
	python func() *python // The node's interpreter; nil for none.
}

// NewPrograms returns the programs of a node.
func NewPrograms(cfg Config) *Programs {
	return &Programs{
		shown: slices.Concat(systemDirs(), systemFiles(), cfg.SiteDirs),
		python: sync.OnceValue(func() *python {
			p, err := findPython(context.Background(), cfg.Python)
			if err != nil {
				return nil // It is logged when the executor opens.
			}
			return p
		}),
	}
}

// Has reports whether sandboxes that have more directories find a program by a PATH, "" for
// the usual one.
func (p *Programs) Has(name, path string, dirs []string) bool {
	search, shown := filepath.SplitList(cmp.Or(path, searchPath)), slices.Concat(p.shown, dirs)
	if sandbox.HasProgram(name, search, shown) {
		return true
	}
	if _, err := exec.LookPath(name); err != nil {
		return false // The interpreter, which takes a while to ask, does not have it either.
	}
	python := p.python()
	if python == nil {
		return false
	}
	if path == "" {
		search = append(search, filepath.Dir(python.Executable))
	}
	return sandbox.HasProgram(name, search, slices.Concat(shown, python.Prefixes))
}
