package prepare

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"berth/compute"
	"berth/node/executor/inputs"
	"berth/node/executor/sandbox"
)

//go:embed bootstrap.py
var bootstrap string

//go:embed cell.py
var cellCode string

// Paths of the driver's own files inside the sandbox.
const (
	ownDir           = "/berth"
	bootstrapFile    = ownDir + "/bootstrap.py"
	priorImportsFile = ownDir + "/prior_imports.py"
	cellFile         = ownDir + "/cell.py"
	kernelStateFile  = ownDir + "/kernel_state"
)

const (
	defaultPython = "python3"
	probeTimeout  = 30 * time.Second
	probeMaxBytes = 64 << 10

	// slowStart is the CPU time of an interpreter's start that is worth a warning. CPython
	// 3.11 takes 10 to 15 ms.
	slowStart   = 50 * time.Millisecond
	startsTried = 2 // The first one fills caches.
)

// probeCode prints where the interpreter is installed, because the program found
// may be a shim or in a virtual environment.
const probeCode = `import sys, json, os
print(json.dumps({"executable": sys.executable, "version": sys.version.split()[0],
"prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix,
os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]}))`

// python is an interpreter of this machine.
type python struct {
	Executable string   `json:"executable"`
	Version    string   `json:"version"`
	Prefixes   []string `json:"prefixes"` // Directories that the interpreter needs.

	start time.Duration // CPU time that a start takes, without code.
}

// findPython returns the interpreter with the name, which is a path or a name in
// PATH.
func findPython(ctx context.Context, name string) (*python, error) {
	if name == "" {
		name = defaultPython
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return nil, compute.Errorf(compute.CodeInvalid,
			"no Python interpreter %q on this node (set python.interpreter): %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	probe := exec.CommandContext(ctx, found, "-I", "-c", probeCode)
	probe.Dir = "/"
	out, err := probe.Output()
	p := new(python)
	if err == nil && len(out) <= probeMaxBytes {
		err = json.Unmarshal(out, p)
	}
	if err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "Python interpreter %s does not work: %w", found, err)
	}
	for _, prefix := range append(p.Prefixes, p.Executable) {
		if !path.IsAbs(prefix) || prefix == "/" {
			return nil, compute.Errorf(compute.CodeInvalid,
				"Python interpreter %s lives in %q, which cannot be shown to executions", found, prefix)
		}
	}
	p.start, err = startCost(ctx, p.Executable)
	return p, err
}

// startCost returns the least CPU time that a start of an interpreter took.
func startCost(ctx context.Context, executable string) (least time.Duration, err error) {
	for range startsTried {
		cmd := exec.CommandContext(ctx, executable, "-c", "pass")
		cmd.Dir = "/"
		if err := cmd.Run(); err != nil {
			return 0, compute.Errorf(compute.CodeInvalid, "Python interpreter %s does not work: %w", executable, err)
		}
		took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// log says which interpreter executions get, and whether each of them pays for a slow
// start.
func (p *python) log(log *slog.Logger) {
	log.Info("python interpreter found", "path", p.Executable, "took", p.start)
	if p.start > slowStart {
		log.Warn("python interpreter starts slowly", "path", p.Executable, "took", p.start,
			"hint", "every execution pays for it: look for *.pth files and sitecustomize in its site-packages, "+
				"or set python.interpreter to another one")
	}
}

// argv returns the command line that executes what the bundle says. A script
// and a module are started as by hand in the work directory.
func (p *python) argv(bundle *compute.Bundle) []string {
	switch {
	case bundle.Module != "":
		return append([]string{p.Executable, "-u", "-m", bundle.Module}, bundle.Args...)
	case bundle.Script != "":
		script := bundle.Script
		if strings.HasPrefix(script, "-") {
			script = "./" + script // It is no option.
		}
		return append([]string{p.Executable, "-u", script}, bundle.Args...)
	}
	prior := ""
	if len(bundle.PriorImports) > 0 {
		prior = priorImportsFile
	}
	file, cell := sandbox.WorkDir+"/"+inputs.FileName(bundle), strconv.Itoa(bundle.Cell)
	return append(append(p.earlyArgv(), file, prior, cell), bundle.Args...)
}

// earlyArgv returns the command line that executes code once it has its arguments. They
// are behind it, or come later.
func (p *python) earlyArgv() []string { return []string{p.Executable, "-u", bootstrapFile} }

// commandArgv returns the command line of a program that is found by PATH, or is
// a path from the work directory. The shell says, and exits with 127, when there
// is none.
func commandArgv(command []string) []string {
	return append([]string{"/bin/sh", "-c", `exec "$@"`, "berth"}, command...)
}

// needsPython reports whether the bundle is executed by the interpreter.
func needsPython(bundle *compute.Bundle) bool { return len(bundle.Command) == 0 }

// files returns the driver's own files for the bundle.
func (p *python) files(bundle *compute.Bundle) []sandbox.File {
	if bundle.Code == "" {
		return nil
	}
	files := []sandbox.File{{Path: bootstrapFile, Text: bootstrap, Mode: 0o444}}
	if len(bundle.PriorImports) > 0 {
		text := strings.Join(bundle.PriorImports, "\n") + "\n"
		files = append(files, sandbox.File{Path: priorImportsFile, Text: text, Mode: 0o444})
	}
	if bundle.Cell > 0 {
		files = append(files, sandbox.File{Path: cellFile, Text: cellCode, Mode: 0o444})
	}
	if bundle.KernelState != "" {
		files = append(files, sandbox.File{Path: kernelStateFile, Text: bundle.KernelState, Mode: 0o444})
	}
	return files
}
