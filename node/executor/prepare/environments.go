package prepare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/packages"
	"berth/node/executor/sandbox"
)

const (
	environmentAt     = "/environment" // In the sandbox: a directory of the node with packages.
	environmentWithin = time.Minute    // For a node that restarted to prepare what it offered before.
)

// environment is a named environment that this node has ready. A nil one is none.
type environment struct {
	compute.Environment

	python *python // The interpreter of a path; nil for the node's.
}

// request returns the packages of an environment that was installed, none for a path.
func (x *environment) request() packages.Request {
	return packages.Request{Org: x.Org, Requirements: x.Requirements}
}

// siteDir returns the directory of the packages of a path, in the sandbox; "" for none.
func (x *environment) siteDir() string {
	if x == nil || x.Path == "" || x.python != nil {
		return ""
	}
	return environmentAt
}

// bind adds what a path has to the root of an execution. An interpreter stays where it
// is on the machine, because its files name each other by their paths.
func (x *environment) bind(spec *sandbox.Spec) {
	switch {
	case x == nil || x.Path == "":
	case x.python == nil:
		spec.Binds = append(spec.Binds, sandbox.Bind{Source: x.Path, Target: environmentAt})
	default:
		own := append([]string{x.Path}, x.python.Prefixes...)
		slices.Sort(own) // Parents before children.
		for _, name := range own {
			spec.Binds = add(spec.Binds, sandbox.Bind{Source: name, Target: name})
		}
	}
}

// environments are the named environments that this node has ready for executions. Its
// methods are safe for concurrent use.
type environments struct {
	installer *installer
	turns     *live.Turns

	mu sync.Mutex

	ready    map[compute.EnvironmentID]*environment
	prepared chan struct{} // Closed, and replaced, when one is added.
}

func newEnvironments(installer *installer, turns *live.Turns) *environments {
	return &environments{
		installer: installer, turns: turns,
		ready: make(map[compute.EnvironmentID]*environment), prepared: make(chan struct{}),
	}
}

// prepare makes an environment ready for executions on this node, and returns the disk
// space that it takes. An error says in the installer's words why that is impossible.
func (s *environments) prepare(ctx context.Context, of compute.Environment) (sizeMiB int64, err error) {
	x := &environment{Environment: of}
	if of.Path != "" {
		err = x.find(ctx)
	} else {
		sizeMiB, err = s.installer.installKept(ctx, x)
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[of.ID] = x
	close(s.prepared)
	s.prepared = make(chan struct{})
	return sizeMiB, nil
}

// find checks that the path is there, and looks for its interpreter.
func (x *environment) find(ctx context.Context) error {
	info, err := os.Stat(x.Path)
	if err != nil || !info.IsDir() {
		return compute.Errorf(compute.CodeInvalid, "this node has no directory %s", x.Path)
	}
	name := filepath.Join(x.Path, "bin", defaultPython)
	if x.Interpreter != "" {
		name = filepath.Join(x.Path, x.Interpreter)
	} else if _, err := os.Stat(name); err != nil {
		return nil //nolint:nilerr // It has packages for the node's interpreter.
	}
	p, err := findPython(ctx, name)
	if err != nil {
		return err
	}
	for _, prefix := range append([]string{x.Path}, p.Prefixes...) {
		if slices.Contains([]string{"work", "tmp", "run", "berth", "packages"}, strings.Split(prefix, "/")[1]) {
			return compute.Errorf(compute.CodeInvalid,
				"the interpreter %s lives in %s, where executions have something else", name, prefix)
		}
	}
	x.python = p
	return nil
}

// forget removes what prepare made ready. Executions that use it keep it.
func (s *environments) forget(id compute.EnvironmentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.ready[id]
	delete(s.ready, id)
	if x != nil && x.Path == "" {
		s.installer.store.Unpin(x.request())
	}
}

// of returns the environment that an execution asks for, nil for none. A node
// that has just restarted may still be preparing it.
func (s *environments) of(ctx context.Context, x *compute.Execution) (*environment, error) {
	if x.Environment.ID.IsZero() {
		return nil, nil
	}
	if env, _ := s.known(x.Environment.ID); env != nil {
		return env, nil
	}
	defer s.turns.Lend()()
	ctx, cancel := context.WithTimeout(ctx, environmentWithin)
	defer cancel()
	for {
		env, change := s.known(x.Environment.ID)
		if env != nil {
			return env, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, compute.Errorf(compute.CodeUnavailable,
					"this node has no environment %q any more", x.Environment.Name)
			}
			return nil, ctx.Err()
		}
	}
}

// known returns a prepared environment, or nil and a channel that is closed when
// another one is prepared.
func (s *environments) known(id compute.EnvironmentID) (*environment, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready[id], s.prepared
}
