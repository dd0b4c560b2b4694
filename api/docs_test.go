package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth/api"
	"berth/api/edge"
	"berth/api/wire"
)

// TestOpenAPI holds that the document is valid OpenAPI 3.1 with exactly the
// specification's tags.
func TestOpenAPI(t *testing.T) {
	w := newWorld(t)
	data := w.mustDo("GET", "/openapi.json", "", nil, nil).body
	document, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	if document.Info.Version != "0.1.0" || !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Errorf("version %s of OpenAPI %s", document.Info.Version, document.OpenAPI)
	}
	want := []string{
		"Authentication", "Organizations", "Org API Keys", "Org Invites", "Streaming Execution",
		"Docker Execution", "Docker Compose Execution", "GPU Selection Execution", "Workload Management",
		"Execution Management", "Observability - Logs", "Observability - GPU Metrics", "Machine Types", "Pricing",
		"User Quotas", "Storage Files", "Storage Credentials", "Environment Variables",
		"Dedicated Deployment External", "Billing", "VMs", "Serverless Inference", "Account",
	}
	var got []string
	for _, tag := range document.Tags {
		got = append(got, tag.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("tags are %v, want %v", got, want)
	}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			for _, tag := range op.Tags {
				if !slices.Contains(want, tag) {
					t.Errorf("%s %s has the tag %q", method, path, tag)
				}
			}
		}
	}
}

// TestAnswersMatchTheDocument holds each golden answer against the schema of
// its route.
func TestAnswersMatchTheDocument(t *testing.T) {
	w := newWorld(t)
	document, err := openapi3.NewLoader().LoadFromData(w.mustDo("GET", "/openapi.json", "", nil, nil).body)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, schema := range map[string]string{
		"login": "Session", "user_status": "UserStatus", "key_created": "MintedKey", "start": "Started",
		"selection_start": "SelectionStarted", "execution_live": "Execution", "execution_ended": "Execution",
		"execution_status": "ExecutionStatus", "timing": "TimingAnswer", "selection": "Selection",
		"workload_stopped": "Stopped", "history": "ExecutionHistory", "credits": "Credits",
		"credits_details": "CreditsDetails", "ledger": "Ledger", "ledger_verify": "LedgerCheck",
		"machine_types": "MachineTypes", "pricing": "Pricing", "quotas": "Quotas", "nodes": "Nodes", "peers": "Peers",
		"org_quotas": "OrgQuotas",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".golden.json"))
		if err != nil {
			t.Fatal(err)
		}
		var value any
		w.ok(json.Unmarshal(data, &value))
		ref := document.Components.Schemas[schema]
		if ref == nil {
			t.Errorf("no schema %s", schema)
			continue
		}
		if err := ref.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s is not a %s: %v", name, schema, err)
		}
		// A schema that takes anything would prove nothing.
		if err := ref.Value.VisitJSON(map[string]any{}, openapi3.EnableJSONSchema2020()); err == nil {
			t.Errorf("%s takes an empty object", schema)
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d answers checked", checked)
	}
}

// TestDocument holds that docs/api.md says what the routes do.
func TestDocument(t *testing.T) {
	preamble, err := os.ReadFile(filepath.Join("testdata", "api_preamble.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{bodies: make(map[string]reflect.Type)}
	d.Write(preamble)
	d.routes()
	d.passedOn()
	d.types()
	golden(t, filepath.Join("..", "docs", "api.md"), []byte(d.String()))
}

// document is docs/api.md as it is written.
type document struct {
	strings.Builder

	bodies map[string]reflect.Type // Types that were named, and are to be described.
}

// inDocument returns the groups in the order in which the document describes them. It
// keeps to it wherever the groups are: people know where they find a route. Groups that
// are not here follow.
func inDocument() []string {
	return []string{
		"sessions", "signups", "users", "orgs", "adminOrgs", "members", "keys", "userKeys",
		"executions", "selections", "services", "deployments", "models", "images", "composes", "workloads",
		"outputs", "logLines", "series", "callbacks", "files", "uploads", "storage", "partUploads",
		"billing", "machines", "prices", "variables", "invites", "environments", "callbackSecrets",
		"budgets", "audits", "checkouts", "rotations", "joinTokens", "nodes", "limits", "brakes", "raft",
		"decisions", "probes", "viewer",
	}
}

// passedOn describes the paths that have no route.
func (d *document) passedOn() {
	d.WriteString("\n## Requests that are passed on\n\n" +
		"Engines, programs and the S3 gateway answer these, and their bodies are passed on as they are. All other paths have a route.\n\n" +
		"| path | methods | needs | |\n|---|---|---|---|\n")
	for _, row := range edge.PassedOn() {
		methods, needs := strings.Join(row.Methods, ", "), "a signature of S3"
		if methods == "" {
			methods = "all"
		}
		if !row.Signed {
			needs = "a member of the organization; keys the scope `" + string(row.Scope) + "`"
		}
		fmt.Fprintf(d, "| `%s%s` | %s | %s | %s |\n", row.Root, row.Path, methods, needs, row.Summary)
	}
}

// routes describes all routes, by tag.
func (d *document) routes() {
	order := inDocument()
	place := func(r api.RouteDoc) int {
		if i := slices.Index(order, r.Group); i >= 0 {
			return i
		}
		return len(order)
	}
	all := api.Routes()
	slices.SortStableFunc(all, func(a, b api.RouteDoc) int { return cmp.Compare(place(a), place(b)) })
	group := "\x00"
	for _, r := range all {
		if r.Tag != group {
			if group = r.Tag; group == "" {
				fmt.Fprintf(d, "\n## Node and operator\n")
			} else {
				fmt.Fprintf(d, "\n## %s\n", group)
			}
		}
		fmt.Fprintf(d, "\n### %s %s\n\n%s\n\n", r.Method, strings.TrimPrefix(r.Path, root), r.Summary)
		fmt.Fprintf(d, "- Needs: %s.\n", r.Needs)
		if r.Query != nil {
			fmt.Fprintf(d, "- Query: %s\n", d.name(r.Query))
		}
		if r.Body != nil {
			fmt.Fprintf(d, "- Body: %s\n", d.name(r.Body))
		}
		var answers []string
		if r.Reply != nil {
			answers = append(answers, d.name(r.Reply))
		}
		for _, media := range r.Accepts {
			answers = append(answers, "`"+media+"`")
		}
		fmt.Fprintf(d, "- Answers: %s\n", strings.Join(answers, ", or "))
	}
}

// types describes every type that was named, and those that they name.
func (d *document) types() {
	d.WriteString("\n## Bodies\n")
	done := make(map[string]bool)
	for len(done) < len(d.bodies) {
		for _, name := range slices.Sorted(maps.Keys(d.bodies)) {
			if !done[name] {
				done[name] = true
				d.table(name, d.bodies[name])
			}
		}
	}
}

// table describes the fields of one type.
func (d *document) table(name string, t reflect.Type) {
	fmt.Fprintf(d, "\n### %s\n\n| Field | Type | Rules | Meaning |\n|---|---|---|---|\n", name)
	for _, f := range wire.Fields(t) {
		field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fmt.Fprintf(d, "| %s | %s | %s | %s |\n", field, d.name(f.Type), rulesOf(f.Tag), f.Tag.Get("doc"))
	}
}

// rulesOf returns the rules of a field for people.
func rulesOf(tag reflect.StructTag) string {
	var out []string
	for _, rule := range []struct{ tag, text string }{
		{"required", "required"},
		{"default", "default %s"},
		{"min", "≥ %s"},
		{"max", "≤ %s"},
		{"gt", "> %s"},
		{"minlen", "at least %s characters"},
		{"maxlen", "at most %s characters"},
		{"maxitems", "at most %s items"},
		{"pattern", "`%s`"},
		{"enum", "%s"},
	} {
		value, ok := tag.Lookup(rule.tag)
		switch {
		case !ok:
		case rule.tag == "enum":
			out = append(out, strings.ReplaceAll(value, ",", " / "))
		case strings.Contains(rule.text, "%s"):
			out = append(out, fmt.Sprintf(rule.text, value))
		default:
			out = append(out, rule.text)
		}
	}
	return strings.Join(out, ", ")
}

// name returns what a type is called in the document.
func (d *document) name(t reflect.Type) string {
	schema := make(wire.Schemas).SchemaOf(t)
	switch t.Kind() {
	case reflect.Pointer:
		return d.name(t.Elem()) + " or null"
	case reflect.Slice:
		return "array of " + d.name(t.Elem())
	case reflect.Map:
		return "object of " + d.name(t.Elem())
	}
	if schema["$ref"] != nil {
		d.bodies[t.Name()] = t
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	}
	if format, ok := schema["format"].(string); ok {
		return format
	}
	text, _ := schema["type"].(string)
	return text
}
