package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"berth/api/wire"
	"berth/compute"
)

// apiVersion is the version of the interface description.
const apiVersion = "0.1.0"

// tags returns the specification's groups of endpoints, in its order. Account
// is the one that it gives to a single endpoint.
func tags() []string {
	return []string{
		"Authentication", "Organizations", "Org API Keys", "Org Invites", "Streaming Execution",
		"Docker Execution", "Docker Compose Execution", "GPU Selection Execution", "Workload Management",
		"Execution Management", "Observability - Logs", "Observability - GPU Metrics", "Machine Types",
		"Pricing", "User Quotas", "Storage Files", "Storage Credentials", "Environment Variables",
		"Dedicated Deployment External", "Billing", "VMs", "Serverless Inference", "Account",
	}
}

// object is a JSON object of the document.
type object = map[string]any

// openAPI returns the OpenAPI document of routes.
func openAPI(routes []route, version string) ([]byte, error) {
	schemas := make(wire.Schemas)
	paths := make(map[string]object)
	for i := range routes {
		rt := &routes[i]
		if paths[rt.path] == nil {
			paths[rt.path] = object{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = operation(rt, schemas)
	}
	var groups []object
	for _, name := range tags() {
		groups = append(groups, object{"name": name})
	}
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Berth", "version": apiVersion,
			"description": "The API of a Berth cluster, the same on every node. Server version " + version + ".",
		},
		"tags":  groups,
		"paths": paths,
		"components": object{
			"schemas": schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer", "description": "API key, access token or root token."},
			},
		},
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	return data, nil
}

// operation returns the OpenAPI operation of a route.
func operation(rt *route, schemas wire.Schemas) object {
	out := object{
		"summary":     rt.summary,
		"operationId": operationID(rt),
		"responses":   responses(rt, schemas),
	}
	if rt.tag != "" {
		out["tags"] = []string{rt.tag}
	}
	if rt.need != needNothing && rt.need != needScraper {
		out["security"] = []object{{"bearer": []string{}}}
	}
	if parameters := parameters(rt, schemas); len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if rt.body != nil {
		out["requestBody"] = object{
			"required": !rt.bare,
			"content":  object{"application/json": object{"schema": schemas.Of(bodyType(rt.body))}},
		}
	}
	return out
}

// operationID returns a unique name for a route.
func operationID(rt *route) string {
	clean := strings.NewReplacer("/", "_", "{", "", "}", "", "-", "_", ".", "_")
	return strings.ToLower(rt.method) + clean.Replace(strings.TrimPrefix(rt.path, root))
}

// bodyType returns the type of what fresh makes.
func bodyType(fresh func() any) reflect.Type { return reflect.TypeOf(fresh()).Elem() }

// parameters returns the parameters of a route.
func parameters(rt *route, schemas wire.Schemas) []object {
	var out []object
	for _, name := range rt.parameters() {
		out = append(out, object{
			"name": name, "in": "path", "required": true, "schema": wire.Schema{"type": "string"},
		})
	}
	if rt.query != nil {
		t := bodyType(rt.query)
		properties, _ := schemas.Inline(t)["properties"].(map[string]wire.Schema)
		for _, field := range wire.Fields(t) {
			name := field.Tag.Get("json")
			out = append(out, object{"name": name, "in": "query", "schema": properties[name]})
		}
	}
	if rt.need == needStream {
		out = append(out,
			object{"name": "token", "in": "query", "schema": wire.Schema{"type": "string"}},
			object{"name": "Last-Event-ID", "in": "header", "schema": wire.Schema{"type": "integer"}})
	}
	if rt.need == needCaller {
		out = append(out, object{"name": "X-Org-Slug", "in": "header", "schema": wire.Schema{"type": "string"}})
	}
	switch rt.method {
	case "POST":
		out = append(out, object{
			"name": "Idempotency-Key", "in": "header",
			"schema": wire.Schema{"type": "string", "maxLength": maxIdempotencyKey},
		})
	case "GET":
		if rt.need != needNothing && rt.need != needScraper {
			out = append(out, object{
				"name": "consistency", "in": "query",
				"schema": wire.Schema{"type": "string", "enum": []string{"linearizable", "stale"}},
			})
		}
	}
	return out
}

// responses returns the answers of a route.
func responses(rt *route, schemas wire.Schemas) object {
	success := object{"description": "Success."}
	content := object{}
	for _, media := range rt.accepts {
		content[media] = object{"schema": wire.Schema{"type": "string"}}
	}
	if rt.reply != nil {
		content["application/json"] = object{"schema": schemas.Of(bodyType(rt.reply))}
	}
	if len(content) > 0 {
		success["content"] = content
	}
	failure := func(what string, body any) object {
		return object{
			"description": what,
			"content":     object{"application/json": object{"schema": schemas.Of(reflect.TypeOf(body))}},
		}
	}
	out := object{
		"200":     success,
		"422":     failure("The request is malformed: everything that is wrong with it.", wire.Faults{}),
		"default": failure("Any other failure.", wire.Error{}),
	}
	return out
}

// needText describes the rights that a route needs.
func needText(rt *route) string {
	switch rt.need {
	case needCaller:
		return "API key or access token"
	case needOrg:
		if rt.role > compute.OrgMember {
			return fmt.Sprintf("API key or access token of an %s of the organization", rt.role)
		}
		return "API key or access token of a member of the organization"
	case needOperator:
		return "root token, or an operator's API key or access token"
	case needScraper:
		return "the metrics token, where the operator set one"
	case needStream:
		return "the token in the URL, or an API key or access token"
	case needNothing:
	}
	return "nothing"
}
