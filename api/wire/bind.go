package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/compute"
)

// limits are what the tags of a field demand. They are read once for each type.
type limits struct {
	required bool // The field must be there.
	nonnull  bool // Null is refused instead of leaving the field out.
	secret   bool
	positive bool

	minLength, maxLength, low, high, maxItems *int // Nil for none.

	beyond  string // Advice beyond high; "" for none.
	pattern *regexp.Regexp
	enum    string  // The values, which commas separate; "" for any.
	items   *limits // Those of each item of a list or dictionary.
}

// limitsOf reads the tags of a field. A tag that it cannot read is a programming error.
func limitsOf(tag reflect.StructTag) *limits {
	l := &limits{
		required: tag.Get("required") == "true", secret: tag.Get("secret") == "true",
		positive: tag.Get("gt") == "0", enum: tag.Get("enum"), beyond: tag.Get("beyond"),
		minLength: numberIn(tag, "minlen"), maxLength: numberIn(tag, "maxlen"),
		low: numberIn(tag, "min"), high: numberIn(tag, "max"), maxItems: numberIn(tag, "maxitems"),
	}
	l.nonnull = l.required || tag.Get("nonnull") == "true"
	l.items = &limits{secret: l.secret, minLength: l.minLength, maxLength: l.maxLength}
	if pattern := tag.Get("pattern"); pattern != "" {
		l.pattern = regexp.MustCompile(pattern)
	}
	return l
}

// numberIn returns the number in a tag, nil for none.
func numberIn(tag reflect.StructTag, name string) *int {
	text, ok := tag.Lookup(name)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("wire: tag %s of %s: %v", name, tag, err))
	}
	return &n
}

// binder sets one field from its JSON text.
type binder struct {
	*limits

	faults *Faults
	parent []any // Where the field is, without its own name or number.
	key    any
}

// loc returns where the field is.
func (b binder) loc() []any { return append(slices.Clip(b.parent), b.key) }

// input returns raw for a fault, unless the field holds a secret.
func (b binder) input(raw json.RawMessage) json.RawMessage {
	if b.secret {
		return nil
	}
	return raw
}

// fault records a fault of this field.
func (b binder) fault(kind, msg string, raw json.RawMessage, ctx map[string]any) {
	b.faults.Add(Fault{Type: kind, Loc: b.loc(), Msg: msg, Input: b.input(raw), Ctx: ctx})
}

// set sets v from raw, or records what is wrong with it.
func (b binder) set(v reflect.Value, raw json.RawMessage) {
	switch out := v.Addr().Interface().(type) {
	case *string:
		*out = b.text(raw)
	case **string:
		text := b.text(raw)
		*out = &text
	case *int:
		*out = int(b.integer(raw))
	case **int:
		n := int(b.integer(raw))
		*out = &n
	case *uint64:
		*out = uint64(max(b.integer(raw), 0))
	case *float64:
		*out = b.float(raw)
	case **float64:
		n := b.float(raw)
		*out = &n
	case *bool:
		*out = b.boolean(raw)
	case **bool:
		v := b.boolean(raw)
		*out = &v
	case *[]string:
		*out = b.texts(raw)
	case *map[string]string:
		*out = b.dict(raw)
	case *compute.Credits:
		*out = b.credits(raw)
	case *compute.Instant:
		*out = b.instant(raw)
	default:
		if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Struct {
			panic(fmt.Sprintf("wire: no rule for the type of %v", b.loc()))
		}
		b.objects(v, raw)
	}
}

// objects sets v, a slice of structs, to the objects that raw holds.
func (b binder) objects(v reflect.Value, raw json.RawMessage) {
	items, ok := b.list(raw)
	if !ok {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		loc := append(b.loc(), i)
		if fields, ok := object(item, b.faults, loc...); ok {
			bindStruct(fields, v.Index(i), b.faults, loc)
		}
	}
}

// list returns the items of the list that raw holds.
func (b binder) list(raw json.RawMessage) ([]json.RawMessage, bool) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		b.faults.add(typeList, b.input(raw), b.loc())
		return nil, false
	}
	if n := b.maxItems; n != nil && len(items) > *n {
		b.tooMany("List", *n, len(items))
		return nil, false
	}
	return items, true
}

// text returns the string that raw holds.
func (b binder) text(raw json.RawMessage) string {
	s, ok := plainText(raw)
	if !ok {
		if err := json.Unmarshal(raw, &s); err != nil || string(raw) == "null" {
			b.faults.add(typeString, b.input(raw), b.loc())
			return ""
		}
	}
	length := utf8.RuneCountInString(s)
	if n := b.minLength; n != nil && length < *n {
		b.fault("string_too_short", "String should have at least "+characters(*n),
			raw, map[string]any{"min_length": *n})
		return s
	}
	if n := b.maxLength; n != nil && length > *n {
		b.fault("string_too_long", "String should have at most "+characters(*n),
			raw, map[string]any{"max_length": *n})
		return s
	}
	if b.pattern != nil && !b.pattern.MatchString(s) {
		b.fault("string_pattern_mismatch", fmt.Sprintf("String should match pattern '%s'", b.pattern),
			raw, map[string]any{"pattern": b.pattern.String()})
	}
	if b.enum != "" && !oneOf(b.enum, s) {
		expected := orList(strings.Split(b.enum, ","))
		b.fault("enum", "Input should be "+expected, raw, map[string]any{"expected": expected})
	}
	return s
}

// plainText returns the string that raw holds if it is written without escapes.
func plainText(raw json.RawMessage) (string, bool) {
	n := len(raw)
	if n < 2 || raw[0] != '"' || raw[n-1] != '"' {
		return "", false
	}
	for _, c := range raw[1 : n-1] {
		if c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			return "", false
		}
	}
	return string(raw[1 : n-1]), true
}

// characters returns n with its noun.
func characters(n int) string {
	if n == 1 {
		return "1 character"
	}
	return strconv.Itoa(n) + " characters"
}

// oneOf reports whether s is one of the values, which commas separate.
func oneOf(values, s string) bool {
	for value := range strings.SplitSeq(values, ",") {
		if value == s {
			return true
		}
	}
	return false
}

// orList returns "'a', 'b' or 'c'".
func orList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + v + "'"
	}
	last := len(quoted) - 1
	if last == 0 {
		return quoted[0]
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// integer returns the integer that raw holds. As clients of services of this
// family expect, a string of digits is one too, and so is 60.0.
func (b binder) integer(raw json.RawMessage) int64 {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		b.bounds(n, raw)
		return n
	}
	text := string(raw)
	quoted := strings.HasPrefix(text, `"`)
	if quoted {
		if err := json.Unmarshal(raw, &text); err != nil {
			text = ""
		}
		text = strings.TrimSpace(text)
	} else if text == "" || !strings.ContainsRune("-0123456789", rune(text[0])) {
		b.faults.add(typeInt, b.input(raw), b.loc())
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		if n, err = wholeNumber(text); err != nil {
			b.notInteger(raw, quoted, text)
			return 0
		}
	}
	b.bounds(n, raw)
	return n
}

// wholeNumber returns the integer that a number with a fraction or an exponent
// is.
func wholeNumber(text string) (int64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, err
	}
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 || strings.ContainsAny(text, "xXpP_") {
		return 0, strconv.ErrSyntax
	}
	return int64(x), nil
}

// notInteger records why text is not an integer.
func (b binder) notInteger(raw json.RawMessage, quoted bool, text string) {
	switch {
	case strings.Trim(text, "-0123456789") == "" && strings.Trim(text, "-") != "":
		b.fault("int_parsing_size",
			"Unable to parse input string as an integer, exceeded maximum size", raw, nil)
	case quoted:
		b.fault("int_parsing",
			"Input should be a valid integer, unable to parse string as an integer", raw, nil)
	default:
		b.fault("int_from_float",
			"Input should be a valid integer, got a number with a fractional part", raw, nil)
	}
}

// bounds holds n against the tags min and max.
func (b binder) bounds(n int64, raw json.RawMessage) {
	if low := b.low; low != nil && n < int64(*low) {
		b.fault("greater_than_equal", fmt.Sprintf("Input should be greater than or equal to %d", *low),
			raw, map[string]any{"ge": *low})
	}
	if high := b.high; high != nil && n > int64(*high) {
		msg := fmt.Sprintf("Input should be less than or equal to %d", *high)
		if b.beyond != "" {
			msg += ": " + b.beyond
		}
		b.fault("less_than_equal", msg, raw, map[string]any{"le": *high})
	}
}

// boolean returns the boolean that raw holds; in a query it is a string.
func (b binder) boolean(raw json.RawMessage) bool {
	switch string(raw) {
	case "true", `"true"`, `"1"`:
		return true
	case "false", `"false"`, `"0"`:
		return false
	}
	if strings.HasPrefix(string(raw), `"`) {
		b.fault("bool_parsing", "Input should be a valid boolean, unable to interpret input", raw, nil)
		return false
	}
	b.faults.add(typeBool, b.input(raw), b.loc())
	return false
}

// texts returns the strings that raw holds.
func (b binder) texts(raw json.RawMessage) []string {
	items, ok := b.list(raw)
	if !ok {
		return nil
	}
	out := make([]string, len(items))
	for i, item := range items {
		one := binder{limits: b.items, faults: b.faults, parent: b.loc()[:2], key: i}
		out[i] = one.text(item)
	}
	return out
}

// tooMany records that the field holds more than limit items.
func (b binder) tooMany(what string, limit, got int) {
	b.fault("too_long",
		fmt.Sprintf("%s should have at most %d items after validation, not %d", what, limit, got),
		nil, map[string]any{"field_type": what, "max_length": limit, "actual_length": got})
}

// dict returns the strings by name that raw holds.
func (b binder) dict(raw json.RawMessage) map[string]string {
	var items map[string]json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		b.faults.add(typeDict, b.input(raw), b.loc())
		return nil
	}
	if n := b.maxItems; n != nil && len(items) > *n {
		b.tooMany("Dictionary", *n, len(items))
		return nil
	}
	out := make(map[string]string, len(items))
	for _, name := range sortedKeys(items) {
		one := binder{limits: b.items, faults: b.faults, parent: b.loc()[:2], key: name}
		out[name] = one.text(items[name])
	}
	return out
}

// maxDecimal bounds the text of an amount, so that an exponent cannot blow it
// up.
const maxDecimal = 40

// credits returns the amount that raw, a number or a string, holds exactly.
func (b binder) credits(raw json.RawMessage) compute.Credits {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			text = ""
		}
	} else if text == "" || !strings.ContainsRune("-0123456789", rune(text[0])) {
		b.faults.add(typeDecimal, b.input(raw), b.loc())
		return 0
	}
	most := compute.MaxAmount
	if b.high != nil {
		most = compute.Credits(*b.high) * compute.Credit
	}
	amount, err := compute.ParseCredits(plainDecimal(text))
	switch {
	case errors.Is(err, compute.ErrManyCredits) || err == nil && amount > most:
		b.fault("less_than_equal", "Input should be less than or equal to "+most.String(),
			raw, map[string]any{"le": most})
		return 0
	case err != nil:
		b.fault("decimal_parsing",
			"Input should be a valid decimal with no more than 6 decimal places", raw, nil)
		return 0
	}
	if b.positive && amount <= 0 {
		b.fault("greater_than", "Input should be greater than 0", raw, map[string]any{"gt": 0})
	}
	return amount
}

// float returns the number that raw holds.
func (b binder) float(raw json.RawMessage) float64 {
	var n float64
	if err := json.Unmarshal(raw, &n); err != nil || string(raw) == "null" {
		b.fault("float_type", "Input should be a valid number", raw, nil)
	}
	return n
}

// plainDecimal returns text without an exponent, or "" when it is not a number of
// a reasonable size.
func plainDecimal(text string) string {
	mantissa, exponent, found := strings.Cut(strings.ToLower(text), "e")
	if !found {
		return text
	}
	e, err := strconv.Atoi(exponent)
	if large := err == nil && e > maxDecimal || errors.Is(err, strconv.ErrRange) && exponent[0] != '-'; large {
		e, err = maxDecimal, nil // Too large all the same, unless it is 0.
	}
	if err != nil || len(mantissa) > maxDecimal || e < -maxDecimal {
		return ""
	}
	x, ok := new(big.Rat).SetString(mantissa + "e" + strconv.Itoa(e))
	if !ok {
		return ""
	}
	plain := x.FloatString(6)
	if back, ok := new(big.Rat).SetString(plain); !ok || back.Cmp(x) != 0 {
		return ""
	}
	return plain
}

// instant returns the point in time that raw holds as RFC 3339.
func (b binder) instant(raw json.RawMessage) compute.Instant {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		b.fault("datetime_type", "Input should be a valid datetime", raw, nil)
		return 0
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && t.Unix() > 0 {
			return compute.InstantOf(t)
		}
	}
	b.fault("datetime_parsing", "Input should be a valid datetime in RFC 3339 form",
		raw, map[string]any{"error": "not RFC 3339, or before 1970"})
	return 0
}

// sortedKeys returns the keys of m in order, so that faults come in one.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
