package api

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
)

// openAI describes the OpenAI-compatible API: its bodies are the engines', so that no
// type of ours describes them.
//
//go:embed openai.json
var openAI []byte

// modelOperation is one operation in openAI.
type modelOperation struct {
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	ID      string          `json:"id"`
	Summary string          `json:"summary"`
	Body    string          `json:"body"` // Names of schemas.
	Reply   string          `json:"reply"`
	Stream  bool            `json:"stream"`
	Example json.RawMessage `json:"example"`
}

// addModels adds the OpenAI-compatible API to the paths and schemas of the document.
func addModels(paths map[string]object, schemas wire.Schemas) error {
	var described struct {
		Operations []modelOperation       `json:"operations"`
		Schemas    map[string]wire.Schema `json:"schemas"`
	}
	if err := json.Unmarshal(openAI, &described); err != nil {
		return fmt.Errorf("read description of models: %w", err)
	}
	for name, schema := range described.Schemas {
		schemas[name] = schema
	}
	used := make(map[*modelOperation]bool)
	for _, row := range edge.PassedOn() {
		if !row.Model() {
			continue
		}
		id := "openai_"
		if row.Root != edge.ModelRoot {
			id = "serverless_"
		}
		for _, method := range row.Methods {
			at := slices.IndexFunc(described.Operations, func(op modelOperation) bool {
				return op.Path == row.Path && strings.EqualFold(op.Method, method)
			})
			if at < 0 {
				return fmt.Errorf("%s %s%s is not described", method, row.Root, row.Path)
			}
			op := &described.Operations[at]
			used[op] = true
			if paths[row.Root+op.Path] == nil {
				paths[row.Root+op.Path] = object{}
			}
			paths[row.Root+op.Path][op.Method] = op.document(id + op.ID)
		}
	}
	if len(used) != len(described.Operations) {
		return errors.New("an operation of models that is described is not served")
	}
	return nil
}

// document returns the operation as the OpenAPI document has it.
func (op *modelOperation) document(id string) object {
	content := func(name string) object {
		return object{"application/json": object{"schema": object{"$ref": "#/components/schemas/" + name}}}
	}
	replies := content(op.Reply)
	if op.Stream {
		replies["text/event-stream"] = object{"schema": object{"type": "string"}}
	}
	header := func(what string) object { return object{"description": what, "schema": object{"type": "string"}} }
	failure := object{"description": "Any failure, in the envelope of OpenAI.", "content": content("OpenAIError")}
	out := object{
		"summary": op.Summary, "operationId": id, "tags": []string{"Serverless Inference"},
		"description": op.Summary + ", as clients of OpenAI do.\n\n" +
			"Needs API key or access token of a member of the organization.",
		"security": []object{{"bearer": []string{}}},
		"responses": object{
			"200": object{"description": "Success.", "content": replies, "headers": object{
				"X-Request-Id":                   header("Names the request in logs."),
				"X-Ratelimit-Remaining-Requests": header("Requests that the key may still send to this node now."),
				"X-Ratelimit-Remaining-In-Flight": header(
					"Requests that the organization may have under way at this node beside this one; absent from lists."),
			}},
			"default": failure,
		},
	}
	if strings.Contains(op.Path, "{model}") {
		out["parameters"] = []object{{
			"name": "model", "in": "path", "required": true, "schema": object{"type": "string"},
			"description": "With %2F for a slash.",
		}}
	}
	if op.Body != "" {
		body := content(op.Body)
		body["application/json"].(object)["example"] = op.Example
		out["requestBody"] = object{"required": true, "content": body}
	}
	return out
}
