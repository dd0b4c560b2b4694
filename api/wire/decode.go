package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of a JSON document.
const (
	maxDepth = 32 // Levels of nested objects and lists.
	// maxTokens is how many names and values a document may have. Each costs
	// far more time than its bytes. A start has at most 1,000 import files, and its
	// other lists are shorter.
	maxTokens = 16_384
)

// Checker is a body with rules that tags cannot say. Check is called when its
// fields are bound, also when some of them had faults.
type Checker interface{ Check(f *Faults) }

// Decode reads data, the body of a request, into the struct behind into, and
// records everything that is wrong with it in f.
func Decode(data []byte, into any, f *Faults) {
	if len(bytes.TrimSpace(data)) == 0 {
		f.add(typeMissing, json.RawMessage("null"), []any{"body"})
		return
	}
	fields, ok := object(data, f, "body")
	if !ok {
		return
	}
	bind(fields, into, f, "body")
}

// DecodeQuery reads the parameters of a query into the struct behind into, and
// records everything that is wrong with them in f.
func DecodeQuery(query map[string]string, into any, f *Faults) {
	fields := make(map[string]json.RawMessage, len(query))
	for name, value := range query {
		if !utf8.ValidString(value) {
			f.Value("not UTF-8", "query", name)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			f.Value(err.Error(), "query", name)
			continue
		}
		fields[name] = text
	}
	bind(fields, into, f, "query")
}

// object returns the members of the JSON object data. It refuses what is not
// JSON, has a key twice, nests too deep or is not UTF-8.
func object(data []byte, f *Faults, loc ...any) (map[string]json.RawMessage, bool) {
	if !utf8.Valid(data) {
		f.invalidJSON("the text is not UTF-8", append(loc, 0)...)
		return nil, false
	}
	if at := loneSurrogate(data); at >= 0 {
		f.invalidJSON("half of a surrogate pair is not a character", append(loc, at)...)
		return nil, false
	}
	if err := syntaxOf(data); err != nil {
		at := max(err.Offset-1, 0)
		if text := err.Error(); at == int64(len(data))-1 && strings.HasPrefix(text, "unexpected end") {
			f.invalidJSON(io.ErrUnexpectedEOF.Error(), append(loc, at+1)...)
		} else {
			f.invalidJSON(text, append(loc, at)...)
		}
		return nil, false
	}
	before := len(f.Detail)
	s := scanner{data: data, faults: f}
	if err := s.value(loc, 0); err != nil {
		f.invalidJSON(err.Error(), append(loc, int64(s.at))...)
		return nil, false
	}
	if len(f.Detail) > before {
		return nil, false
	}
	if s.fields == nil {
		if len(loc) > 1 {
			f.add(typeDict, nil, loc)
			return nil, false
		}
		f.Add(Fault{
			Type: "model_attributes_type", Loc: loc, Input: data,
			Msg: "Input should be a valid dictionary or object to extract fields from",
		})
		return nil, false
	}
	return s.fields, true
}

// unread is a value that is checked and not kept.
type unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (unread) UnmarshalJSON([]byte) error { return nil }

// syntaxOf returns the first error in the syntax of a document, nil for none. It
// allocates nothing of the document's size.
func syntaxOf(data []byte) *json.SyntaxError {
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(unread))); ok {
		return syntax
	}
	return nil
}

// loneSurrogate returns where an escape in JSON text names one half of a
// surrogate pair without the other, -1 for nowhere. The decoder would put
// U+FFFD there, and so change what was sent.
func loneSurrogate(data []byte) int {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		unit, size := escaped(data[i:])
		if utf16.IsSurrogate(unit) {
			next, more := escaped(data[i+size:])
			if utf16.DecodeRune(unit, next) == utf8.RuneError {
				return i
			}
			size += more
		}
		i += size - 1
	}
	return -1
}

// escaped returns the UTF-16 unit of the escape \uXXXX that data begins with, 0
// for any other escape or none, and the length of the escape.
func escaped(data []byte) (unit rune, size int) {
	const size16 = len(`\uXXXX`)
	if len(data) < size16 || data[0] != '\\' || data[1] != 'u' {
		return 0, min(2, len(data))
	}
	n, err := strconv.ParseUint(string(data[2:size16]), 16, 16)
	if err != nil {
		return 0, 2 // Not JSON, which the decoder says.
	}
	return rune(n), size16
}

// errDepth is returned for a document that nests deeper than maxDepth.
var errDepth = fmt.Errorf("nested deeper than %d", maxDepth)

// errTokens is returned for a document with more than maxTokens names and
// values.
var errTokens = fmt.Errorf("more than %d names and values", maxTokens)

// scanner walks one JSON document whose syntax is good. It copies nothing of it
// but the names.
type scanner struct {
	data   []byte
	at     int // Where the next value is, or the space before it.
	faults *Faults
	count  int                        // Names and values so far.
	fields map[string]json.RawMessage // Fields of the outermost object, as parts of data; nil if data is not an object.
}

// value walks the value that comes next.
func (s *scanner) value(loc []any, depth int) error {
	if err := s.spend(); err != nil {
		return err
	}
	switch s.peek() {
	case '{':
		return s.object(loc, depth+1)
	case '[':
		return s.list(loc, depth+1)
	case '"':
		s.text()
	default:
		for s.at < len(s.data) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(s.data[s.at])) {
			s.at++
		}
	}
	return nil
}

// object walks an object.
func (s *scanner) object(loc []any, depth int) error {
	s.at++
	if depth > maxDepth {
		return errDepth
	}
	seen := make(map[string]json.RawMessage)
	if depth == 1 {
		s.fields = seen
	}
	for ; s.peek() != '}'; s.comma() {
		key, err := s.key()
		if err != nil {
			return err
		}
		at := append(loc[:len(loc):len(loc)], any(key))
		if _, twice := seen[key]; twice {
			s.faults.Value("the key is there twice", at...)
		}
		s.peek()
		from := s.at
		if err := s.value(at, depth); err != nil {
			return err
		}
		seen[key] = s.data[from:s.at:s.at]
	}
	s.at++
	return nil
}

// list walks a list.
func (s *scanner) list(loc []any, depth int) error {
	s.at++
	if depth > maxDepth {
		return errDepth
	}
	for i := 0; s.peek() != ']'; i++ {
		if err := s.value(append(loc[:len(loc):len(loc)], any(i)), depth); err != nil {
			return err
		}
		s.comma()
	}
	s.at++
	return nil
}

// peek returns the next character that is not a space.
func (s *scanner) peek() byte {
	for s.data[s.at] == ' ' || s.data[s.at] == '\t' || s.data[s.at] == '\r' || s.data[s.at] == '\n' {
		s.at++
	}
	return s.data[s.at]
}

// comma goes behind a comma, if it comes next.
func (s *scanner) comma() {
	if s.peek() == ',' {
		s.at++
	}
}

// text returns the next string as it is in the document, with its quotes.
func (s *scanner) text() []byte {
	from := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[from:s.at]
}

// spend counts one more name or value.
func (s *scanner) spend() error {
	if s.count++; s.count > maxTokens {
		return errTokens
	}
	return nil
}

// key returns the next member's name, and goes behind its colon.
func (s *scanner) key() (key string, err error) {
	if err := s.spend(); err != nil {
		return "", err
	}
	s.peek()
	text := s.text()
	if plain, ok := plainText(text); ok {
		key = plain
	} else if err := json.Unmarshal(text, &key); err != nil {
		return "", err
	}
	s.peek()
	s.at++
	return key, nil
}

// bind sets the fields of the struct behind into, and checks it.
func bind(fields map[string]json.RawMessage, into any, f *Faults, loc string) {
	bindStruct(fields, reflect.ValueOf(into).Elem(), f, []any{loc})
	if c, ok := into.(Checker); ok {
		c.Check(f)
	}
}

// member is a field of a struct that JSON sets.
type member struct {
	*limits

	index  int
	name   string          // In JSON; "" for an embedded struct.
	key    any             // The name, as a part of a location.
	preset json.RawMessage // The value of an absent field; nil if it stays zero.
}

// members holds the members of each struct type that was bound so far.
var members sync.Map //nolint:gochecknoglobals // A cache of what never changes.

// membersOf returns the members of a struct type.
func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	var out []member
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("json")
		if field.Anonymous {
			out = append(out, member{index: i})
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		m := member{limits: limitsOf(field.Tag), index: i, name: name, key: name}
		if value, ok := field.Tag.Lookup("default"); ok {
			m.preset = json.RawMessage(value)
		}
		out = append(out, m)
	}
	members.Store(t, out)
	return out
}

// bindStruct sets the fields of v, those of embedded structs too.
func bindStruct(fields map[string]json.RawMessage, v reflect.Value, f *Faults, loc []any) {
	for _, m := range membersOf(v.Type()) {
		if m.name == "" {
			bindStruct(fields, v.Field(m.index), f, loc)
			continue
		}
		raw, present := fields[m.name]
		present = present && (m.nonnull || string(raw) != "null")
		if !present {
			raw = m.preset
		}
		if raw == nil && !m.required {
			continue
		}
		b := binder{limits: m.limits, faults: f, parent: loc, key: m.key}
		if !present && m.required {
			f.add(typeMissing, nil, b.loc())
			continue
		}
		b.set(v.Field(m.index), raw)
	}
}
