package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/edge"
	"berth/testsize"
)

var (
	mutations    = flag.Int("mutations", testsize.Pick(10_000, 100_000), "send so many mutated requests")
	mutationSeed = flag.Uint64("mutations.seed", 1, "of the mutated requests")
)

// mutator changes requests that a route accepts. The same seed gives the same
// requests.
type mutator struct{ *rand.Rand }

// pick returns one of values.
func pick[T any](m mutator, values ...T) T { return values[m.IntN(len(values))] }

// texts are strings that are handled wrongly somewhere.
func texts() []string {
	return []string{
		"", " ", "0", "-1", "1", "true", "null", "NaN", "1e309", "9223372036854775808", "0x10", "1_000", "1.5",
		"\x00", "a\x00b", "\u2028", "\ufeff", "\U0001F600", "\xff\xfe", "\xed\xa0\x80", "%00", "%zz", "../../etc/passwd", "/", `\`,
		"gpu.h100", "gpu.h100.8x", "h100:8 x2", "h100:64 x1000", "cpu:0", "ada-lab", "cyd-lab", "bob@example.com",
		"00000000-0000-0000-0000-000000000000", strings.Repeat("a", 300), strings.Repeat("é", 5000), "https://example.com/$SECRET",
		"2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30", "a=b&c", "<script>", "'; --", "{}", "[]",
	}
}

// value returns JSON text: what a field might be given by mistake or on purpose.
func (m mutator) value(depth int) string {
	switch n := m.IntN(10); {
	case n < 4:
		text, _ := json.Marshal(pick(m, texts()...)) // Strings can be encoded.
		return string(text)
	case n < 6:
		return pick(m, "0", "-1", "1", "1e400", "-0", "1.5", "60.0", "1e2", "9007199254740993", "18446744073709551616", "600", "1e-7")
	case n < 7:
		return pick(m, "null", "true", "false", "nul", "undefined", "'a'", `"\ud800"`, `"\u0000"`, "[", "{", `"`)
	case depth > 3:
		return "[]"
	case n < 9:
		items := make([]string, m.IntN(4))
		for i := range items {
			items[i] = m.value(depth + 1)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	return m.object(map[string]string{"a": m.value(depth + 1), "B": m.value(depth + 1)}, 0)
}

// object returns a JSON object with fields in any order. It changes so many of them.
func (m mutator) object(fields map[string]string, changes int) string {
	names := slices.Sorted(maps.Keys(fields))
	m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	parts := make([]string, 0, len(names)+1)
	for i, name := range names {
		value := fields[name]
		if i < changes {
			value = m.value(0)
		}
		text, _ := json.Marshal(name) // Strings can be encoded.
		parts = append(parts, string(text)+":"+value)
	}
	if changes > 0 && m.IntN(8) == 0 && len(parts) > 0 {
		parts = append(parts, pick(m, parts...)) // A name twice.
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// bytes changes text without regard to what it means.
func (m mutator) bytes(text string) string {
	data := []byte(text)
	for range 1 + m.IntN(3) {
		at := m.IntN(len(data) + 1)
		switch m.IntN(5) {
		case 0:
			data = data[:at]
		case 1:
			data = slices.Insert(data, at, byte(m.IntN(256)))
		case 2:
			data = slices.Insert(data, at, []byte(pick(m, texts()...))...)
		case 3:
			data = append(data, data[at:]...)
		case 4:
			if at < len(data) {
				data[at] ^= 1 << m.IntN(8)
			}
		}
	}
	if m.IntN(50) == 0 {
		deep := 20 + m.IntN(5000)
		return strings.Repeat("[", deep) + strings.Repeat("]", m.IntN(deep))
	}
	return string(data)
}

// fieldsOf returns the names of a body or a query in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	if t == nil {
		return nil
	}
	for field := range structFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// structFields returns the fields of a struct, those of embedded ones too.
func structFields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, field := range reflect.VisibleFields(t) {
			if !field.Anonymous && !yield(field) {
				return
			}
		}
	}
}

// body returns a mutation of a body that the route accepts.
func (m mutator) body(rt api.RouteDoc, sample string) string {
	if rt.Streamed {
		return m.bytes(sample)
	}
	if rt.Body == nil {
		return pick(m, "", "", "", "{}", "[]", "\x00")
	}
	var known map[string]json.RawMessage
	if err := json.Unmarshal([]byte(sample), &known); err != nil {
		panic(err) // The sample of the test is broken.
	}
	fields := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if m.IntN(10) > 0 {
			fields[name] = string(known[name])
		}
	}
	for _, name := range fieldsOf(rt.Body) {
		if m.IntN(4) == 0 {
			fields[name] = m.value(0)
		}
	}
	text := m.object(fields, m.IntN(3))
	if m.IntN(4) == 0 {
		text = m.bytes(text)
	}
	return text
}

// query returns a query with the parameters of the route.
func (m mutator) query(rt api.RouteDoc, sample string) string {
	parts := strings.Split(sample, "&")
	for _, name := range append(fieldsOf(rt.Query), "consistency", "token", pick(m, texts()...)) {
		if m.IntN(3) > 0 {
			continue
		}
		value := pick(m, texts()...)
		if name == "wait" {
			value = pick(m, "0", "1ms", "-1s", "NaN", "1e-9", "x", "2562048h") // Other durations are waited for.
		}
		if len(name)+len(value) > 400 {
			continue // The header has to fit.
		}
		if m.IntN(4) > 0 {
			value = url.QueryEscape(value)
		} else if strings.ContainsAny(value, " \x00\ufeff\u2028") || !printable(value) {
			continue // Not valid in a request line.
		}
		parts = append(parts, url.QueryEscape(name)+"="+value)
	}
	m.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return strings.Trim(strings.Join(parts, "&"), "&")
}

// printable reports whether text can be in a request line as it is.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// headers returns headers that the server reads.
func (m mutator) headers() (header []string) {
	for _, name := range []string{"Idempotency-Key", "X-Org-Slug", "Last-Event-Id", "If-None-Match", "Accept", "X-Request-Id", "Content-Type"} {
		value := pick(m, append(texts(), "application/json", "W/\"0\"", "text/plain", "1", "2", "3")...)
		if m.IntN(6) == 0 && printable(value) && value != "" {
			header = append(header, name, value)
		}
	}
	return header
}

// documentedFailure reports whether a status of 500 or more is one that an operator
// reads about: the node cannot serve now.
func documentedFailure(a answer) bool {
	codes := []string{"unavailable", "too_many_streams", "too_many_bytes", "timeout"}
	return a.status == 503 && slices.Contains(codes, a.code())
}

// canary is in what another organization than that of the requests has.
const canary = "canary-of-bob"

// plant gives bob's organization things that say that they are its own.
func (m *matrix) plant() {
	m.Helper()
	for path, body := range map[string]string{
		"/execution/streaming/start": `{"code":"print('canary-of-bob')","name":"canary-of-bob","tags":["canary-of-bob"]}`,
		"/auth/api-keys":             `{"key_name":"canary-of-bob"}`,
		"/orgs/bob-lab/api-keys":     `{"name":"canary-of-bob"}`,
		"/orgs/bob-lab/invites":      `{"email":"canary-of-bob@example.com"}`,
		"/environment-variables":     `{"name":"CANARY","value":"canary-of-bob","is_secret":false}`,
		"/environments":              `{"name":"canary-of-bob","requirements":"numpy"}`,
	} {
		m.mustDo("POST", path, m.bobKey, body, nil)
	}
	m.mustDo("PATCH", "/orgs/bob-lab", m.bobKey, `{"name":"canary-of-bob"}`, nil)
	m.store(m.bobKey, canary, canary)
}

// reached reports whether an answer is of a handler: the request was well formed, had a
// credential and a body that could be read.
func reached(status int) bool {
	return !slices.Contains([]int{400, 401, 405, 413, 415, 422, 431}, status)
}

// TestMutatedRequests sends mutations of good requests to all routes, with good
// credentials. None fails inside the server or shows what another organization has, and
// it serves afterwards. At least half of the requests get as far as a handler.
func TestMutatedRequests(t *testing.T) {
	m := newMatrix(t)
	m.plant()
	m.listen()
	m.client = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return m.dial() }, DisableCompression: true,
	}}
	random := mutator{rand.New(rand.NewPCG(*mutationSeed, 0))}
	routes := api.Routes()
	objects := make([][]string, len(routes))
	for i, rt := range routes {
		if strings.Contains(rt.Path, "{") {
			own, none := m.object(rt)
			for _, params := range []map[string]string{own, own, none} {
				path := rt.Path
				for name, value := range params {
					path = strings.ReplaceAll(path, name, value)
				}
				objects[i] = append(objects[i], path)
			}
			bad := url.PathEscape(pick(random, texts()...))
			objects[i] = append(objects[i], strings.NewReplacer("{id}", bad, "{slug}", bad, "{resource}", bad, "{file_key}", bad, "{folder_prefix}", bad, "{org}", bad).Replace(rt.Path))
		}
	}
	byStatus := make(map[int]int)
	handled, foreign := 0, 0
	for n := range *mutations {
		if n%10_000 == 9_999 {
			m.pass(time.Second) // Rates allow for more.
		}
		i := n % len(routes)
		rt := routes[i]
		path := rt.Path
		if objects[i] != nil {
			path = pick(random, objects[i]...)
		}
		sample, query := m.sample(rt)
		if text := random.query(rt, query); text != "" {
			path += "?" + text
		}
		body, header := random.body(rt, sample), random.headers()
		if rt.Streamed && random.IntN(8) > 0 {
			header = append(header, "Content-Type", formType)
		}
		a := m.fetch(rt.Method, path, m.bearerFor(rt), []byte(body), header)
		byStatus[a.status]++
		if reached(a.status) {
			handled++
		}
		if rt.Need != edge.NeedOperator && rt.Need != edge.NeedScraper && bytes.Contains(a.body, []byte(canary)) {
			foreign++
			t.Errorf("request %d of seed %d: %s %s shows another organization's: %s", n, *mutationSeed, rt.Method, path, a.body)
		}
		if a.status >= 500 && !documentedFailure(a) {
			t.Errorf("request %d of seed %d: %s %s %q with %q: %d %s", n, *mutationSeed, rt.Method, path, body, header, a.status, a.body)
		}
		if kind := a.header.Get("Content-Type"); kind == "application/json" && !json.Valid(a.body) {
			t.Errorf("request %d of seed %d: %s %s is answered %s", n, *mutationSeed, rt.Method, path, a.body)
		}
	}
	m.mustDo("GET", "/user/status", m.cydKey, nil, nil)
	m.mustDo("POST", "/execution/streaming/start", m.adaKey, `{"code":"1"}`, nil)
	var counts []string
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		counts = append(counts, fmt.Sprintf("%d × %d", byStatus[status], status))
	}
	t.Logf("measured: %d mutated requests to %d routes, %d reached a handler, %d show what is another organization's: %s",
		*mutations, len(routes), handled, foreign, strings.Join(counts, ", "))
	if byStatus[200] == 0 || byStatus[422] == 0 || handled < *mutations/2 {
		t.Error("the mutations are too tame or too wild")
	}
}

// bearerFor returns a credential that the route accepts.
func (m *matrix) bearerFor(rt api.RouteDoc) string {
	switch rt.Need {
	case edge.NeedOperator:
		return rootToken
	case edge.NeedScraper:
		return metricsToken
	case edge.NeedNothing, edge.NeedCaller, edge.NeedUser, edge.NeedOrg, edge.NeedStream:
	}
	return m.cydKey
}
