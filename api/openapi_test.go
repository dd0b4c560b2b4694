package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth/api"
	"berth/api/wire"
)

// openapiFile is where TestOpenAPIRules leaves the document, for the linters of
// scripts/openapi.sh.
var openapiFile = flag.String("openapi", "", "write the OpenAPI document to this `file`")

// document returns the OpenAPI document.
func (w *world) document() *openapi3.T {
	w.Helper()
	d, err := openapi3.NewLoader().LoadFromData(w.mustDo("GET", "/openapi.json", "", nil, nil).body)
	w.ok(err)
	w.ok(d.Validate(context.Background()))
	return d
}

// TestOpenAPIRules holds the rules of Spectral's recommended set that concern this
// document, so that they hold without Node.js too.
func TestOpenAPIRules(t *testing.T) {
	w := newWorld(t)
	if *openapiFile != "" {
		w.ok(os.WriteFile(*openapiFile, w.mustDo("GET", "/openapi.json", "", nil, nil).body, 0o644))
	}
	d := w.document()
	if d.Info.Contact == nil || d.Info.Description == "" || len(d.Servers) == 0 {
		t.Error("the document has no contact, description or server")
	}
	ids := make(map[string]bool)
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + path
			if op.Summary == "" || op.Description == "" || len(op.Tags) != 1 || d.Tags.Get(op.Tags[0]) == nil {
				t.Errorf("%s has no summary, description or known tag", name)
			}
			if ids[op.OperationID] || !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(op.OperationID) {
				t.Errorf("%s has the operationId %q, which is taken or no name", name, op.OperationID)
			}
			ids[op.OperationID] = true
			for _, p := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if op.Parameters.GetByInAndName("path", p[1]) == nil {
					t.Errorf("%s does not declare its parameter %s", name, p[1])
				}
			}
			if op.Responses.Status(200) == nil || op.Responses.Default() == nil {
				t.Errorf("%s lacks an answer", name)
			}
		}
	}
	text := string(w.mustDo("GET", "/openapi.json", "", nil, nil).body)
	for name := range d.Components.Schemas {
		if !strings.Contains(text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("no route uses the schema %s", name)
		}
	}
}

// TestExamples holds each example of the document against its schema and its decoder,
// and that every body has one.
func TestExamples(t *testing.T) {
	w := newWorld(t)
	d := w.document()
	checked := 0
	for _, rt := range api.Routes() {
		if rt.Body == nil {
			continue
		}
		media := d.Paths.Find(rt.Path).GetOperation(rt.Method).RequestBody.Value.Content.Get("application/json")
		if media.Example == nil {
			t.Errorf("%s %s has no example", rt.Method, rt.Path)
			continue
		}
		if err := media.Schema.Value.VisitJSON(media.Example, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("the example of %s %s: %v", rt.Method, rt.Path, err)
		}
		text, err := json.Marshal(media.Example)
		w.ok(err)
		faults := new(wire.Faults)
		if wire.Decode(text, reflect.New(rt.Body).Interface(), faults); len(faults.Detail) > 0 {
			t.Errorf("the example of %s %s: %v", rt.Method, rt.Path, faults.Detail)
		}
		checked++
	}
	for path, item := range d.Paths.Map() {
		op := item.Post
		if op == nil || !strings.Contains(path, "/openai/") && !strings.Contains(path, "/serverless/") {
			continue
		}
		media := op.RequestBody.Value.Content.Get("application/json")
		if err := media.Schema.Value.VisitJSON(media.Example, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("the example of %s: %v", path, err)
		}
		checked++
	}
	t.Logf("measured: %d examples", checked)
}

// TestViewer holds that /docs shows the document with what this node serves alone, and
// that its program is the one that was reviewed.
func TestViewer(t *testing.T) {
	w := newWorld(t)
	page := w.mustDo("GET", "/docs", "", nil, nil)
	policy := page.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self';", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy %q lacks %q", policy, part)
		}
	}
	if bytes.Contains(page.body, []byte("://")) || !bytes.Contains(page.body, []byte(`"/openapi.json"`)) {
		t.Errorf("the page needs other servers, or shows nothing: %s", page.body)
	}
	script := w.mustDo("GET", "/docs/redoc.js", "", nil, nil, "Accept-Encoding", "gzip")
	r, err := gzip.NewReader(bytes.NewReader(script.body))
	w.ok(err)
	program, err := io.ReadAll(r)
	w.ok(err)
	const redoc = "dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b"
	if sum := sha256.Sum256(program); hex.EncodeToString(sum[:]) != redoc {
		t.Errorf("the program has the hash %x, not that of redoc 2.5.4", sum)
	}
	for _, other := range []string{"/livez", "/openapi.json", "/user/status"} {
		got := w.send("GET", other, w.adaKey, nil)
		if p := got.header.Get("Content-Security-Policy"); !slices.Equal(strings.Split(p, "; "), []string{"default-src 'none'", "frame-ancestors 'none'"}) {
			t.Errorf("%s has the policy %q", other, p)
		}
	}
}
