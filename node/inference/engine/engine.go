package engine

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/compute"
)

// Formats of models.
const (
	Safetensors = "safetensors"
	GGUF        = "gguf"
)

// Engine is one way to serve models. The field tags are keys of the node's file, which
// docs/inference.md describes.
type Engine struct {
	Name        string            `koanf:"name"`         // As deployments name it.
	Command     []string          `koanf:"command"`      // Program with its arguments; placeholders are in braces.
	Image       string            `koanf:"image"`        // Docker image with the program; empty: a program of the node.
	Needs       []string          `koanf:"needs"`        // Programs that the node must have; empty: that of the command.
	Dirs        []string          `koanf:"dirs"`         // Directories of the node that the program reads.
	Env         map[string]string `koanf:"env"`          // Variables of the program, with placeholders.
	Formats     []string          `koanf:"formats"`      // safetensors, gguf.
	Allow       []string          `koanf:"allow"`        // Arguments that users may add, as --name or --name=KIND.
	HealthPath  string            `koanf:"health_path"`  // Answers GET with 200 to 399 once the model is loaded.
	MetricsPath string            `koanf:"metrics_path"` // Answers GET with its figures; empty for none.
	Concurrency int               `koanf:"concurrency"`  // Requests that a replica answers at once, unless arguments say.
	GPU         bool              `koanf:"gpu"`          // It needs one.
	StartLimit  time.Duration     `koanf:"start_limit"`  // From its start until it is healthy.
}

// Defaults of the fields that an entry omits.
const (
	DefaultConcurrency = 64
	DefaultStartLimit  = 10 * time.Minute
	maxEngines         = 32
)

// Launch has the values of the placeholders for one start.
type Launch struct {
	ModelPath  string   // {model_path}: a directory, or a file of the format GGUF.
	Model      string   // {model}: as on the hub.
	Deployment string   // {deployment}: as requests name the model.
	Port       int      // {port}
	GPUs       int      // {gpus}: at least 1.
	Args       []string // {args}: added by the user.
}

// argsPlace is the placeholder of the user's arguments. A command without it has them
// at its end.
const argsPlace = "{args}"

// fill replaces placeholders in one piece, so that no value is read again.
func (l *Launch) fill(text string) string {
	return strings.NewReplacer(
		"{model_path}", l.ModelPath, "{model}", l.Model, "{deployment}", l.Deployment,
		"{port}", fmt.Sprint(l.Port), "{gpus}", fmt.Sprint(max(l.GPUs, 1)),
	).Replace(text)
}

// Argv returns the command line of an engine. The user's arguments are checked again,
// because the list may have changed since.
func (e *Engine) Argv(l Launch) ([]string, error) {
	args, err := e.check(l.Args)
	if err != nil {
		return nil, err
	}
	placed := false
	out := make([]string, 0, len(e.Command)+len(args))
	for _, part := range e.Command {
		if part == argsPlace {
			out, placed = append(out, args...), true
			continue
		}
		out = append(out, l.fill(part))
	}
	if !placed {
		out = append(out, args...)
	}
	return out, nil
}

// Variables returns the variables of an engine.
func (e *Engine) Variables(l Launch) map[string]string {
	out := make(map[string]string, len(e.Env))
	for name, value := range e.Env {
		out[name] = l.fill(value)
	}
	return out
}

// Loads reports whether the engine loads models of a format.
func (e *Engine) Loads(format string) bool { return slices.Contains(e.Formats, format) }

var (
	engineName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	place      = regexp.MustCompile(`\{[a-z_]*\}`)
)

// Validate returns an error for an entry that is not valid.
func (e *Engine) Validate() error {
	switch {
	case !engineName.MatchString(e.Name):
		return fmt.Errorf("engine %q: a name has 1 to 64 lower-case letters, digits, dots and hyphens", e.Name)
	case len(e.Command) == 0:
		return fmt.Errorf("engine %s: needs a command", e.Name)
	case len(e.Formats) == 0 || slices.ContainsFunc(e.Formats, isNoFormat):
		return fmt.Errorf("engine %s: formats are %s and %s", e.Name, Safetensors, GGUF)
	case e.HealthPath != "" && !strings.HasPrefix(e.HealthPath, "/"):
		return fmt.Errorf("engine %s: health_path begins with /", e.Name)
	case e.MetricsPath != "" && !isPath(e.MetricsPath):
		return fmt.Errorf("engine %s: metrics_path is a path, such as /metrics", e.Name)
	case e.Concurrency < 0 || e.StartLimit < 0 || e.StartLimit > compute.MaxReadinessTimeout:
		return fmt.Errorf("engine %s: concurrency and start_limit are not below 0, and start_limit is at most %s",
			e.Name, compute.MaxReadinessTimeout)
	case slices.ContainsFunc(e.Dirs, isNoDir):
		return fmt.Errorf("engine %s: dirs are absolute paths", e.Name)
	}
	known := []string{"{model_path}", "{model}", "{deployment}", "{port}", "{gpus}", argsPlace}
	for _, text := range append(slices.Collect(maps.Values(e.Env)), e.Command...) {
		for _, found := range place.FindAllString(text, -1) {
			if !slices.Contains(known, found) {
				return fmt.Errorf("engine %s: no placeholder %s; there are %s", e.Name, found, strings.Join(known, " "))
			}
		}
	}
	return e.validateAllowed()
}

func isPath(p string) bool {
	u, err := url.Parse(p)
	return err == nil && strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "//") && u.Fragment == ""
}

func isNoFormat(f string) bool { return f != Safetensors && f != GGUF }

func isNoDir(d string) bool { return !filepath.IsAbs(d) || filepath.Clean(d) != d || d == "/" }

// validateAllowed refuses a list by which users could replace arguments of the command.
func (e *Engine) validateAllowed() error {
	for _, entry := range e.Allow {
		name, kind, valued := strings.Cut(entry, "=")
		if !flagName.MatchString(name) || valued && kinds()[kind] == nil {
			return fmt.Errorf("engine %s: allow has %q; write --name or --name=KIND, with the kinds int, number and word",
				e.Name, entry)
		}
		for _, part := range e.Command {
			if set, _, _ := strings.Cut(part, "="); set == name {
				return fmt.Errorf("engine %s: allow has %s, which its command sets", e.Name, name)
			}
		}
	}
	return nil
}

// Set is the engines of a node by name.
type Set struct{ list []Engine }

// NewSet returns the shipped engines, and those of a node's configuration: one of the
// same name replaces the shipped one.
func NewSet(own []Engine) (Set, error) {
	byName := make(map[string]Engine)
	if len(own) > maxEngines {
		return Set{}, fmt.Errorf("%d engines are more than %d", len(own), maxEngines)
	}
	for _, e := range append(Shipped(), own...) {
		if err := e.Validate(); err != nil {
			return Set{}, err
		}
		if e.Concurrency == 0 {
			e.Concurrency = DefaultConcurrency
		}
		if e.StartLimit == 0 {
			e.StartLimit = DefaultStartLimit
		}
		byName[e.Name] = e
	}
	var s Set
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.list = append(s.list, byName[name])
	}
	return s, nil
}

// All returns the engines by name.
func (s Set) All() []Engine { return s.list }

// Get returns an engine.
func (s Set) Get(name string) (*Engine, bool) {
	i := slices.IndexFunc(s.list, func(e Engine) bool { return e.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s.list[i], true
}
