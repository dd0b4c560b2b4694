package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"berth/api/edge"
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
func openAPI(routes []edge.Route, version string) ([]byte, error) {
	schemas := make(wire.Schemas)
	paths := make(map[string]object)
	for i := range routes {
		rt := &routes[i]
		if paths[rt.Path] == nil {
			paths[rt.Path] = object{}
		}
		paths[rt.Path][strings.ToLower(rt.Method)] = operation(rt, schemas)
	}
	if err := addModels(paths, schemas); err != nil {
		return nil, err
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
			"contact":     object{"name": "The operator of this cluster"},
		},
		"servers": []object{{"url": "/", "description": "The node that serves this document."}},
		"tags":    groups,
		"paths":   paths,
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
func operation(rt *edge.Route, schemas wire.Schemas) object {
	out := object{
		"summary":     rt.Summary,
		"description": description(rt),
		"operationId": operationID(rt),
		"responses":   responses(rt, schemas),
		"tags":        []string{tagOf(rt)},
	}
	if rt.Need != edge.NeedNothing && rt.Need != edge.NeedScraper {
		out["security"] = []object{{"bearer": []string{}}}
	}
	if parameters := parameters(rt, schemas); len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if rt.Body != nil {
		out["requestBody"] = object{
			"required": !rt.Bare,
			"content":  object{"application/json": bodyOf(rt, schemas)},
		}
	}
	return out
}

// bodyOf describes the body of a route, with an example.
func bodyOf(rt *edge.Route, schemas wire.Schemas) object {
	out := object{"schema": schemas.SchemaOf(bodyType(rt.Body))}
	if example, ok := examples()[rt.Method+" "+strings.TrimPrefix(rt.Path, edge.Root)]; ok {
		out["example"] = json.RawMessage(example)
	}
	return out
}

// description returns a route's summary with its access rule, and how it may be
// repeated.
func description(rt *edge.Route) string {
	out := rt.Summary + "\n\nNeeds " + needText(rt) + "."
	switch {
	case rt.Once:
		out += " A repeat with the same Idempotency-Key is refused: the secret in the answer is stored nowhere."
	case rt.Method == http.MethodPost && !rt.Local:
		out += " A repeat with the same Idempotency-Key has no further effect."
	}
	return out
}

// tagOf returns the group of a route. The specification has no group for operators and
// for nodes: their routes are in the group of what they are about.
func tagOf(rt *edge.Route) string {
	if rt.Tag != "" {
		return rt.Tag
	}
	path := strings.TrimPrefix(strings.TrimPrefix(rt.Path, edge.Root), "/admin")
	for _, of := range []struct{ prefix, tag string }{
		{"/users", "Account"},
		{"/orgs", "Organizations"},
		{"/audit", "Organizations"},
		{"/secrets", "Environment Variables"},
		{"/quotas", "User Quotas"},
		{"/prices", "Pricing"},
		{"/models", "Serverless Inference"},
		{"/billing", "Billing"},
		{"/storage", "Storage Files"},
		{"/environments", "Execution Management"},
		{"/replay", "Workload Management"},
		{"/whatif", "Workload Management"},
		{"/schedule", "Workload Management"},
		{"/metrics", "Observability - GPU Metrics"},
		{"/nodes", "Machine Types"},
		{"/join-tokens", "Machine Types"},
	} {
		if strings.HasPrefix(path, of.prefix) {
			return of.tag
		}
	}
	return "Account"
}

// operationID returns a unique name for a route.
func operationID(rt *edge.Route) string {
	clean := strings.NewReplacer("/", "_", "{", "", "}", "", "-", "_", ".", "_")
	return strings.ToLower(rt.Method) + clean.Replace(strings.TrimPrefix(rt.Path, edge.Root))
}

// bodyType returns the type of what fresh makes.
func bodyType(fresh func() any) reflect.Type { return reflect.TypeOf(fresh()).Elem() }

// parameters returns the parameters of a route.
func parameters(rt *edge.Route, schemas wire.Schemas) []object {
	var out []object
	for _, name := range rt.Parameters() {
		out = append(out, object{
			"name": name, "in": "path", "required": true, "schema": wire.Schema{"type": "string"},
		})
	}
	if rt.Query != nil {
		t := bodyType(rt.Query)
		properties, _ := schemas.Inline(t)["properties"].(map[string]wire.Schema)
		for _, field := range wire.Fields(t) {
			name := field.Tag.Get("json")
			out = append(out, object{"name": name, "in": "query", "schema": properties[name]})
		}
	}
	if rt.Need == edge.NeedStream {
		out = append(out,
			object{"name": "token", "in": "query", "schema": wire.Schema{"type": "string"}},
			object{"name": "Last-Event-ID", "in": "header", "schema": wire.Schema{"type": "integer"}})
	}
	if rt.Need == edge.NeedCaller {
		out = append(out, object{"name": "X-Org-Slug", "in": "header", "schema": wire.Schema{"type": "string"}})
	}
	switch rt.Method {
	case http.MethodPost:
		out = append(out, object{
			"name": "Idempotency-Key", "in": "header",
			"schema": wire.Schema{"type": "string", "maxLength": edge.MaxIdempotencyKey},
		})
	case http.MethodGet:
		if rt.Need != edge.NeedNothing && rt.Need != edge.NeedScraper {
			out = append(out, object{
				"name": "consistency", "in": "query",
				"schema": wire.Schema{"type": "string", "enum": []string{"linearizable", "stale"}},
			})
		}
	}
	return out
}

// responses returns the answers of a route.
func responses(rt *edge.Route, schemas wire.Schemas) object {
	success := object{"description": "Success."}
	content := object{}
	for _, media := range rt.Accepts {
		kind := "string"
		if media == "application/json" {
			kind = "object"
		}
		content[media] = object{"schema": wire.Schema{"type": kind}}
	}
	if rt.Reply != nil {
		content["application/json"] = object{"schema": schemas.SchemaOf(bodyType(rt.Reply))}
	}
	if len(content) > 0 {
		success["content"] = content
	}
	failure := func(what string, body any) object {
		return object{
			"description": what,
			"content":     object{"application/json": object{"schema": schemas.SchemaOf(reflect.TypeOf(body))}},
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
func needText(rt *edge.Route) string {
	switch rt.Need {
	case edge.NeedCaller:
		return "API key or access token"
	case edge.NeedUser:
		return "API key or access token, also of who is a member of no organization"
	case edge.NeedOrg:
		if rt.Role > compute.OrgMember {
			return fmt.Sprintf("API key or access token of an %s of the organization", rt.Role)
		}
		return "API key or access token of a member of the organization"
	case edge.NeedOperator:
		return "root token, or an operator's API key or access token"
	case edge.NeedScraper:
		return "the metrics token, where the operator set one"
	case edge.NeedStream:
		return "the token in the URL, or an API key or access token"
	case edge.NeedNothing:
	}
	return "nothing"
}
