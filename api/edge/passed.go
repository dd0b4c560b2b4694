package edge

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"berth/compute"
)

// Passed is one path that has no Route: an engine, a program or the S3 gateway answers it, and
// nothing of its body is decoded here. A request is passed on only if its path has a row in the
// table of these.
type Passed struct {
	Root    string        // The path begins with it,
	Path    string        // and goes on so. The last parameter is all that follows.
	Methods []string      // Nil for all: who answers decides.
	Signed  bool          // The S3 gateway checks a signature; else a bearer of the organization is needed.
	Scope   compute.Scope // That API keys need.
	Summary string

	by passer
}

// passer is who passes a request on.
type passer uint8

const (
	byNobody passer = iota // The request has a Route, or none at all.
	byServices
	byModels
	byS3
)

// passed are all paths that are passed on.
var passed = slices.Concat([]Passed{ //nolint:gochecknoglobals // A table.
	{
		Root: "/services", Path: "/{id}/{rest}", Scope: compute.ScopeExecutionsRead, by: byServices,
		Summary: "Have the program of a service answer.",
	}, {
		Root: S3Root, Path: "", Signed: true, by: byS3, Summary: "List the buckets of the caller's organization.",
	}, {
		Root: S3Root, Path: "/{bucket}", Signed: true, by: byS3, Summary: "Read, list or change a bucket.",
	}, {
		Root: S3Root, Path: "/{bucket}/{key}", Signed: true, by: byS3, Summary: "Read, store or delete an object.",
	},
}, modelPaths(ModelRoot), modelPaths(serverlessRoot))

// modelPaths returns the paths of the OpenAI-compatible API below a root.
func modelPaths(root string) []Passed {
	row := func(method, path, summary string) Passed {
		return Passed{
			Root: root, Path: path, Methods: []string{method}, Scope: compute.ScopeInference, by: byModels, Summary: summary,
		}
	}
	return []Passed{
		row(http.MethodGet, "/models", "List the models that the caller may ask."),
		row(http.MethodGet, "/models/{model}", "Read one model."),
		row(http.MethodPost, "/chat/completions", "Have a model answer a conversation."),
		row(http.MethodPost, "/completions", "Have a model continue a text."),
		row(http.MethodPost, "/embeddings", "Turn texts into vectors."),
	}
}

// PassedOn returns all paths that are passed on.
func PassedOn() []Passed { return slices.Clone(passed) }

// Model reports whether the path is one of the OpenAI-compatible API.
func (p *Passed) Model() bool { return p.by == byModels }

// passerOf returns who passes on requests with a path. Whether there is what it names is theirs to
// answer, in their own form.
func passerOf(path []byte) passer {
	for i := range passed {
		p := &passed[i]
		rest, below := bytes.CutPrefix(path, []byte(p.Root))
		if below && (len(rest) == 0 && p.Path == "" || len(rest) > 0 && rest[0] == '/') {
			return p.by
		}
	}
	return byNobody
}

// scopeOf returns the scope that API keys need for what is passed on by somebody.
func scopeOf(by passer) compute.Scope {
	return passed[slices.IndexFunc(passed, func(p Passed) bool { return p.by == by })].Scope
}

// isService reports whether a service answers requests with a path.
func isService(path []byte) bool { return passerOf(path) == byServices }

// isModel reports whether a path is one of the OpenAI-compatible API.
func isModel(path []byte) bool { return passerOf(path) == byModels }

// modelMethods returns the methods of a path below ModelRoot, nil for one that there is not.
func modelMethods(below string) []string {
	for i := range passed {
		p := &passed[i]
		start, _, more := strings.Cut(p.Path, "{")
		if p.Root != ModelRoot || below != p.Path && (!more || !strings.HasPrefix(below, start)) {
			continue
		}
		all := append([]string{http.MethodOptions}, p.Methods...)
		if slices.Contains(all, http.MethodGet) {
			all = append(all, http.MethodHead) // fasthttp leaves the body out.
		}
		slices.Sort(all)
		return all
	}
	return nil
}
