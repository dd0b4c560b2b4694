package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth/api"
)

// breach is a body or a query that breaks one rule of a schema.
type breach struct {
	name  string
	field string // That the answer has to name; "" for the whole body.
	value json.RawMessage
	gone  bool // The field is left out.
}

// breaches returns what breaks each rule that the schema of an object states.
func breaches(s *openapi3.Schema, query bool) (out []breach) {
	for _, name := range s.Required {
		out = append(out, breach{name: "no " + name, field: name, gone: true})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name].Value
		add := func(why string, value any) {
			text, _ := json.Marshal(value) // Strings and numbers always encode.
			out = append(out, breach{name: name + " " + why, field: name, value: text})
		}
		nullable := p.Type.Includes("null") || len(p.AnyOf) > 0
		switch {
		case query:
		case p.Type.Includes("string"), p.Type.Includes("array"):
			add("of another type", 7)
		case p.Type.Includes("integer"), p.Type.Includes("number"), p.Type.Includes("object"):
			add("of another type", []int{})
		case p.Type.Includes("boolean"):
			add("of another type", 7)
		}
		if slices.Contains(s.Required, name) && !nullable && !query {
			add("null", nil)
		}
		if p.Type.Includes("string") {
			if len(p.Enum) > 0 {
				add("outside of its values", "no-such-value")
			}
			if p.MaxLength != nil && *p.MaxLength <= 1<<16 {
				add("too long", strings.Repeat("a", int(*p.MaxLength)+1))
			}
			if p.MinLength > 1 {
				add("too short", "a")
			}
			if p.Pattern != "" {
				add("of another alphabet", "\u2028 \U0001F600")
			}
			if p.Format == "date-time" {
				add("no time", "tomorrow")
			}
		}
		if p.Type.Includes("integer") || p.Type.Includes("number") {
			if p.Min != nil {
				add("too small", *p.Min-1)
			}
			if p.Max != nil {
				add("too large", *p.Max+1)
			}
			if p.ExclusiveMin.Value != nil {
				add("too small", *p.ExclusiveMin.Value)
			}
			if query {
				add("no number", "x")
			}
		}
		if p.MaxItems != nil && *p.MaxItems <= 2000 && !query {
			add("with too many items", slices.Repeat([]string{"a"}, int(*p.MaxItems)+1))
		}
	}
	return out
}

// in returns a body with the breach.
func (b breach) in(fields map[string]json.RawMessage) string {
	changed := maps.Clone(fields)
	if changed == nil {
		changed = make(map[string]json.RawMessage)
	}
	if changed[b.field] = b.value; b.gone {
		delete(changed, b.field)
	}
	text, _ := json.Marshal(changed) // Parts of JSON always encode.
	return string(text)
}

// contract is the OpenAPI document of a world, with what holds answers against it.
type contract struct {
	*matrix

	document    *openapi3.T
	compiler    *jsonschema.Compiler
	goods, bads int
}

func newContract(t *testing.T) *contract {
	c := &contract{matrix: newMatrix(t), compiler: jsonschema.NewCompiler()}
	c.document = c.world.document()
	data, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.mustDo("GET", "/openapi.json", "", nil, nil).body))
	c.ok(err)
	c.ok(c.compiler.AddResource("berth:openapi.json", data))
	c.compiler.AssertFormat()
	return c
}

// TestRoutesKeepTheirContract makes a good request of every route, and for each rule that
// the document states about a body or a query one that breaks it. Good requests succeed,
// bad ones are 422 and name the field, and each answer is what the document says.
func TestRoutesKeepTheirContract(t *testing.T) {
	c := newContract(t)
	for _, rt := range api.Routes() {
		t.Run(rt.Method+" "+rt.Path, func(t *testing.T) { c.try(t, rt) })
	}
	t.Logf("measured: %d good requests and %d that break a rule of the document", c.goods, c.bads)
}

// try makes the requests of a route.
func (c *contract) try(t *testing.T, rt api.RouteDoc) {
	op := c.document.Paths.Find(rt.Path).GetOperation(rt.Method)
	path := rt.Path
	if strings.Contains(path, "{") {
		own, _ := c.object(rt)
		for param, value := range own {
			path = strings.ReplaceAll(path, param, value)
		}
	}
	sample, query := c.sample(rt)
	send := func(body, query string) answer {
		header := []string{"Content-Type", "application/json"}
		if rt.Streamed {
			header[1] = formType
		}
		return c.fetch(rt.Method, strings.TrimSuffix(path+"?"+query, "?"), c.bearerFor(rt), []byte(body), header)
	}
	if rt.Body != nil && !strings.HasSuffix(rt.Path, "/webhook") { // Its handler verifies the bytes.
		var fields map[string]json.RawMessage
		c.ok(json.Unmarshal([]byte(sample), &fields))
		for _, b := range breaches(op.RequestBody.Value.Content.Get("application/json").Schema.Value, false) {
			c.bads++
			c.refused(t, b.name, rt, send(b.in(fields), query), "body", b.field)
		}
		for _, text := range []string{"[]", "1", "null", `"a"`, "{", `{"a":1,"a":2}`, "{}{}", "\xff"} {
			c.bads++
			if a := send(text, query); a.status != http.StatusUnprocessableEntity {
				t.Errorf("with the body %q: %d %s", text, a.status, a.body)
			}
		}
	}
	asked, err := url.ParseQuery(query)
	c.ok(err)
	for _, b := range breaches(querySchema(op), true) {
		changed := maps.Clone(asked)
		value := string(b.value)
		_ = json.Unmarshal(b.value, &value) // Numbers stay as they are.
		changed.Set(b.field, value)
		c.bads++
		c.refused(t, "?"+b.name, rt, send(sample, changed.Encode()), "query", b.field)
	}
	c.goods++
	a := c.good(rt, path, query, sample)
	if a.status != http.StatusOK {
		t.Errorf("with %s: %d %s", sample, a.status, a.body)
	}
	c.described(t, "good", rt, a)
}

// good makes a request that a route carries out. Some change what other requests need, or
// are a person's: somebody else makes them.
func (c *contract) good(rt api.RouteDoc, path, query, sample string) answer {
	bearer, header := c.bearerFor(rt), []string{"Content-Type", "application/json"}
	if rt.Streamed {
		header[1] = formType
	}
	path = strings.TrimSuffix(path+"?"+query, "?")
	c.serial++
	name := fmt.Sprint("person", c.serial)
	switch rt.Method + " " + strings.TrimPrefix(rt.Path, root) {
	case "POST /user/password":
		c.addUser(name, false)
		bearer = c.login(name).AccessToken
		sample = fmt.Sprintf(`{"old_password":%q,"new_password":"another password"}`, password)
	case "DELETE /user/delete":
		c.addUser(name, false)
		bearer, sample = c.login(name).AccessToken, fmt.Sprintf(`{"password":%q}`, password)
	case "DELETE /orgs/{slug}":
		bearer, _ = c.addUser(name, false)
		path = root + "/orgs/" + name + "-lab"
	default:
		if ofPerson(rt) {
			bearer = c.login("cyd").AccessToken
		}
	}
	return c.fetch(rt.Method, path, bearer, []byte(sample), header)
}

// querySchema returns the parameters of a query as an object.
func querySchema(op *openapi3.Operation) *openapi3.Schema {
	out := openapi3.NewObjectSchema()
	for _, p := range op.Parameters {
		if p.Value.In == "query" && p.Value.Name != "token" {
			out.WithPropertyRef(p.Value.Name, p.Value.Schema)
		}
	}
	return out
}

// refused fails unless an answer says that a field is wrong.
func (c *contract) refused(t *testing.T, name string, rt api.RouteDoc, a answer, in, field string) {
	t.Helper()
	if a.status != http.StatusUnprocessableEntity {
		t.Errorf("%s: %d %s", name, a.status, a.body)
		return
	}
	c.described(t, name, rt, a)
	for _, fault := range faultsOf(t, a) {
		if strings.HasPrefix(fault, in+"."+field+":") || strings.HasPrefix(fault, in+"."+field+".") {
			return
		}
	}
	t.Errorf("%s: the answer does not name %s: %s", name, field, a.body)
}

// described fails unless an answer is what the document says of its status.
func (c *contract) described(t *testing.T, name string, rt api.RouteDoc, a answer) {
	t.Helper()
	responses := c.document.Paths.Find(rt.Path).GetOperation(rt.Method).Responses
	status := strconv.Itoa(a.status)
	if responses.Value(status) == nil {
		status = "default"
	}
	content := responses.Value(status).Value.Content
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	switch {
	case a.status == http.StatusNotModified || len(content) == 0 && len(a.body) == 0:
		return
	case content[kind] == nil:
		t.Errorf("%s: the document has no %q with status %d", name, kind, a.status)
		return
	case kind != "application/json":
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.body))
	c.ok(err)
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	place := strings.Join([]string{
		"", "paths", escape.Replace(rt.Path), strings.ToLower(rt.Method), "responses", status, "content", escape.Replace(kind), "schema",
	}, "/")
	schema, err := c.compiler.Compile("berth:openapi.json#" + url.PathEscape(place))
	c.ok(err)
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %d is not what the document says: %v\n%s", name, a.status, err, a.body)
	}
}
