package wire

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"berth/compute"
)

// Schema is a JSON schema, as OpenAPI 3.1 has it.
type Schema map[string]any

// Schemas collects the schemas of named types.
type Schemas map[string]Schema

// SchemaOf returns the schema of values of type t. Structs are collected under their
// names and referred to.
func (s Schemas) SchemaOf(t reflect.Type) Schema {
	if known, ok := known(t); ok {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNullSchema(s.SchemaOf(t.Elem()))
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer"}
	case reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Slice:
		return Schema{"type": "array", "items": s.SchemaOf(t.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": s.SchemaOf(t.Elem())}
	case reflect.Struct:
		return s.ref(t)
	}
	return Schema{}
}

// known returns the schema of types that write themselves.
func known(t reflect.Type) (Schema, bool) {
	if t.Kind() == reflect.Uint8 && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return Schema{"type": "string", "enum": enumOf(t)}, true
	}
	switch t {
	case reflect.TypeFor[compute.Credits]():
		return Schema{"type": "number"}, true
	case reflect.TypeFor[compute.Instant](), reflect.TypeFor[time.Time]():
		return Schema{"type": "string", "format": "date-time"}, true
	case reflect.TypeFor[compute.ExecutionID](), reflect.TypeFor[compute.NodeID](),
		reflect.TypeFor[compute.OrgID](), reflect.TypeFor[compute.UserID](), reflect.TypeFor[compute.KeyID](),
		reflect.TypeFor[compute.BundleID](), reflect.TypeFor[compute.VariableID](),
		reflect.TypeFor[compute.InviteID]():
		return Schema{"type": "string", "format": "uuid"}, true
	case reflect.TypeFor[compute.Digest]():
		return Schema{"type": "string", "pattern": "^[0-9a-f]{64}$"}, true
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return Schema{}, true
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return Schema{"type": "string"}, true
	}
	return nil, false
}

// enumOf returns the words for the values of t, which count from zero without a gap.
func enumOf(t reflect.Type) []string {
	var words []string
	for i := range uint64(math.MaxUint8) {
		value := reflect.New(t).Elem()
		value.SetUint(i)
		word := fmt.Sprint(value.Interface())
		if strings.HasPrefix(word, "unknown_") {
			break
		}
		words = append(words, word)
	}
	return words
}

// orNullSchema returns the schema of what s describes or null.
func orNullSchema(s Schema) Schema {
	kind, plain := s["type"].(string)
	if !plain {
		return Schema{"anyOf": []Schema{s, {"type": "null"}}}
	}
	out := Schema{"type": []string{kind, "null"}}
	for name, value := range s {
		if name != "type" && name != "enum" {
			out[name] = value
		}
	}
	if values, ok := s["enum"].([]string); ok {
		withNull := []any{nil}
		for _, v := range values {
			withNull = append(withNull, v)
		}
		out["enum"] = withNull
	}
	return out
}

// ref returns a reference to the schema of the struct t, which it collects.
func (s Schemas) ref(t reflect.Type) Schema {
	name := SchemaName(t)
	if _, ok := s[name]; !ok {
		s[name] = Schema{} // Ends the recursion of types that hold themselves.
		s[name] = s.object(t)
	}
	return Schema{"$ref": "#/components/schemas/" + name}
}

// SchemaName returns the name of the schema of the struct t. The
// specification's names of the validation error are kept.
func SchemaName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Faults]():
		return "HTTPValidationError"
	case reflect.TypeFor[Fault]():
		return "ValidationError"
	}
	return t.Name()
}

// object returns the schema of the struct t.
func (s Schemas) object(t reflect.Type) Schema {
	properties := make(map[string]Schema)
	required := []string{}
	input := isInput(t)
	for _, field := range Fields(t) {
		schema := s.SchemaOf(field.Type)
		rules(schema, field.Tag)
		if text := field.Tag.Get("doc"); text != "" {
			if _, isRef := schema["$ref"]; isRef {
				schema = Schema{"allOf": []Schema{schema}}
			}
			schema["description"] = text
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		properties[name] = schema
		if input == (field.Tag.Get("required") == "true") && options != "omitempty" {
			required = append(required, name)
		}
	}
	out := Schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// isInput reports whether t is read, not written: fields of answers are always
// there.
func isInput(t reflect.Type) bool {
	for _, field := range Fields(t) {
		for _, tag := range []string{"default", "required", "maxlen", "maxitems", "gt", "min"} {
			if _, ok := field.Tag.Lookup(tag); ok {
				return true
			}
		}
	}
	return false
}

// Fields returns the fields of t that have a name in JSON, those of embedded
// structs first.
func Fields(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		field := t.Field(i)
		switch name := field.Tag.Get("json"); {
		case field.Anonymous:
			out = append(out, Fields(field.Type)...)
		case name != "" && name != "-":
			out = append(out, field)
		}
	}
	return out
}

// rules adds to a schema what the tags of a field say.
func rules(schema Schema, tag reflect.StructTag) {
	_, isList := schema["items"]
	_, isDict := schema["additionalProperties"]
	for name, keyword := range map[string]string{
		"min": "minimum", "max": "maximum", "gt": "exclusiveMinimum",
		"minlen": "minLength", "maxlen": "maxLength",
	} {
		n, err := strconv.Atoi(tag.Get(name))
		if err != nil || ((isList || isDict) && strings.HasSuffix(keyword, "Length")) {
			continue
		}
		schema[keyword] = n
	}
	if n, err := strconv.Atoi(tag.Get("maxitems")); err == nil {
		schema[map[bool]string{true: "maxItems", false: "maxProperties"}[isList]] = n
	}
	if pattern := tag.Get("pattern"); pattern != "" {
		schema["pattern"] = pattern
	}
	if values := tag.Get("enum"); values != "" {
		schema["enum"] = strings.Split(values, ",")
	}
	if text, ok := tag.Lookup("default"); ok {
		schema["default"] = json.RawMessage(text)
	}
}

// Inline returns the schema of the struct t itself, not a reference to it.
func (s Schemas) Inline(t reflect.Type) Schema { return s.object(t) }
