package contracttest

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// modelRoots are the paths of the OpenAI-compatible API.
func modelRoots() []string { return []string{"/openai/v1", root + "/serverless"} }

// ValidateModels asks a model, by the id that lists have, for each kind of answer, at
// each path. Embeddings only if the model makes them.
func ValidateModels(ctx context.Context, cfg Config, key, model string, embeds bool) error {
	v := &validator{cfg: cfg, ctx: ctx, key: key}
	v.models()
	conversation := []any{map[string]any{"role": "user", "content": "Hello"}}
	for _, root := range modelRoots() {
		list := v.do(request{absolute: true, method: "GET", path: root + "/models", bearer: key, shape: modelList()})
		members, _ := list.(map[string]any)
		found := false
		rows, _ := members["data"].([]any)
		for _, row := range rows {
			found = found || member(row, "id") == model
		}
		if !found {
			v.fault("GET %s/models: %s is not listed", root, model)
		}
		v.do(request{
			absolute: true, method: "GET", path: root + "/models/" + strings.ReplaceAll(model, "/", "%2F"), bearer: key,
			shape: oneModel(),
		})
		v.do(request{
			absolute: true, method: "POST", path: root + "/chat/completions", bearer: key, shape: chatCompletion(),
			body: map[string]any{"model": model, "messages": conversation, "max_tokens": 4},
		})
		v.do(request{
			absolute: true, method: "POST", path: root + "/completions", bearer: key, shape: completion(),
			body: map[string]any{"model": model, "prompt": "Hello", "max_tokens": 4},
		})
		if embeds {
			v.do(request{
				absolute: true, method: "POST", path: root + "/embeddings", bearer: key, shape: embeddings(),
				body: map[string]any{"model": model, "input": "Hello"},
			})
		}
		v.events(root, map[string]any{"model": model, "messages": conversation, "max_tokens": 4, "stream": true})
	}
	return errors.Join(v.faults...)
}

// events reads a stream to its end.
func (v *validator) events(root string, body map[string]any) {
	status, kind, data, err := v.exchange(request{
		absolute: true, method: "POST", path: root + "/chat/completions", bearer: v.key, body: body,
	})
	text := string(data)
	if err != nil || status != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") ||
		!strings.HasPrefix(text, "data: {") || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		v.fault("POST %s/chat/completions: a stream is %d as %q: %s, %v", root, status, kind, clip(data), err)
	}
}

// models asks for models as far as that needs none.
func (v *validator) models() {
	nameless, unknown := map[string]any{"prompt": "x"}, map[string]any{"model": "none"}
	for _, root := range modelRoots() {
		v.do(request{absolute: true, method: "GET", path: root + "/models", bearer: v.key, shape: modelList()})
		for _, r := range []request{
			{method: "GET", path: "/models/none", bearer: v.key, status: http.StatusNotFound},
			{method: "GET", path: "/models", bearer: "lk_" + strings.Repeat("x", 60), status: http.StatusUnauthorized},
			{method: "POST", path: "/chat/completions", bearer: v.key, body: "{", status: http.StatusBadRequest},
			{method: "POST", path: "/completions", bearer: v.key, body: nameless, status: http.StatusBadRequest},
			{method: "POST", path: "/embeddings", bearer: v.key, body: unknown, status: http.StatusNotFound},
			{method: "GET", path: "/completions", bearer: v.key, status: http.StatusMethodNotAllowed},
		} {
			r.absolute, r.path, r.shape = true, root+r.path, modelFailure()
			v.do(r)
		}
	}
}

func oneModel() *shape {
	return &shape{"model", []field{
		{name: "id"}, {name: "object"}, {name: "created", kind: integer}, {name: "owned_by"}, {name: "root", optional: true},
	}}
}

func modelList() *shape {
	return &shape{"model list", []field{{name: "object"}, {name: "data", kind: list, of: oneModel()}}}
}

func modelFailure() *shape {
	return &shape{"failure", []field{{name: "error", kind: inner, of: &shape{"error", []field{
		{name: "message"}, {name: "type"}, {name: "param", nullable: true}, {name: "code", nullable: true},
	}}}}}
}

func tokenUsage() *shape {
	return &shape{"usage", []field{
		{name: "prompt_tokens", kind: integer},
		{name: "total_tokens", kind: integer},
		{name: "completion_tokens", kind: integer, optional: true},
	}}
}

func chatCompletion() *shape {
	message := &shape{"message", []field{{name: "role"}, {name: "content", nullable: true}}}
	choice := &shape{"choice", []field{{name: "message", kind: inner, of: message}}}
	return &shape{"chat completion", []field{
		{name: "model"}, {name: "choices", kind: list, of: choice}, {name: "usage", kind: inner, of: tokenUsage()},
	}}
}

func completion() *shape {
	return &shape{"completion", []field{
		{name: "model"}, {name: "choices", kind: list, of: anyObject()}, {name: "usage", kind: inner, of: tokenUsage()},
	}}
}

func embeddings() *shape {
	vector := &shape{"embedding", []field{{name: "embedding", kind: anything}}}
	return &shape{"embeddings", []field{
		{name: "data", kind: list, of: vector}, {name: "usage", kind: inner, of: tokenUsage()},
	}}
}
