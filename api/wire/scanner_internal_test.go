package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// FuzzObject holds the members of a document to those that encoding/json finds.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `1`, `"a"`, ` { "a" : 1 , "b" : [ 1 , { "c" : { } } , [ ] ] } `, `{"a":"\"}\\","b":true}`,
		`{"a\u0062":-1.5e+3}`, `{"":"","é":"\ud83d\ude00"}`, "{\t\"a\":\r\n[0 ,1],\"b\" :null\n}\n", `{"a":1}x`, `{"a":1`, `{`, ``,
		`{"a":{"b":1,"b":2}}`, `{"a":1,"a":2}`, strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, ok := object(data, new(Faults), "body")
		var want map[string]json.RawMessage
		err := json.Unmarshal(data, &want)
		if ok && (err != nil || !maps.EqualFunc(fields, want, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })) {
			t.Errorf("%q: got %q, encoding/json has %q, %v", data, fields, want, err)
		}
		if !ok && err == nil && want != nil && !refused(data) {
			t.Errorf("%q: refused", data)
		}
	})
}

// refused reports whether a document is refused for a reason that encoding/json
// does not know.
func refused(data []byte) bool {
	f := new(Faults)
	object(data, f, "body")
	return !slices.ContainsFunc(f.Detail, func(one Fault) bool {
		text, _ := one.Ctx["error"].(string)
		known := []string{"twice", "nested deeper", "names and values", "UTF-8", "surrogate"}
		return !slices.ContainsFunc(known, func(k string) bool { return strings.Contains(text, k) })
	})
}

// TestObjectCopiesNothing reads a document with a large text, a good one and one
// that ends early.
func TestObjectCopiesNothing(t *testing.T) {
	const size, most = 4 << 20, 64 << 10
	for _, end := range []string{`"}`, ``} {
		data := []byte(`{"code":"` + strings.Repeat("x", size) + end)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, ok := object(data, new(Faults), "body")
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most || ok != (end != "") {
			t.Errorf("end %q: %t with %d bytes for a document of %d", end, ok, got, size)
		}
	}
}
