package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Limits of the answer to a malformed request.
const (
	maxFaults     = 100      // Further faults are left out,
	maxFaultBytes = 16 << 10 // and those beyond so many bytes.
	maxInput      = 256      // A longer value is not repeated to the client; a longer name is cut.
)

// Fault is one thing that is wrong with a request, as the specification's
// validation error has it.
type Fault struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"` // "body", "query", "path" or "header", then names and positions.
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input,omitempty"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// Faults is everything that is wrong with a request: the answer 422.
type Faults struct { //nolint:errname // It is what it collects.
	Detail []Fault `json:"detail"`

	bytes int // Size of the texts in Detail.
}

// Error returns the faults in one line.
func (f *Faults) Error() string {
	parts := make([]string, len(f.Detail))
	for i, fault := range f.Detail {
		parts[i] = fmt.Sprintf("%v: %s", fault.Loc, fault.Msg)
	}
	return "malformed request: " + strings.Join(parts, "; ")
}

// Err returns f as an error, nil when there is no fault.
func (f *Faults) Err() error {
	if len(f.Detail) == 0 {
		return nil
	}
	return f
}

// Add records a fault. The answer stays small, whatever the names are under which
// a client hides its mistakes.
func (f *Faults) Add(fault Fault) {
	if len(f.Detail) == maxFaults || f.bytes > maxFaultBytes {
		return
	}
	if len(fault.Input) > maxInput {
		fault.Input = nil
	}
	fault.Loc = shortNames(fault.Loc)
	for _, part := range fault.Loc {
		if name, ok := part.(string); ok {
			f.bytes += len(name)
		}
	}
	f.bytes += len(fault.Input) + len(fault.Msg)
	f.Detail = append(f.Detail, fault)
}

// shortNames returns a copy of loc with long names cut.
func shortNames(loc []any) []any {
	loc = slices.Clone(loc)
	for i, part := range loc {
		if name, ok := part.(string); ok && len(name) > maxInput {
			loc[i] = strings.ToValidUTF8(name[:maxInput], "") + "…"
		}
	}
	return loc
}

// has reports whether one of these fields of the body has a fault.
func (f *Faults) has(fields ...string) bool {
	return slices.ContainsFunc(f.Detail, func(fault Fault) bool {
		if len(fault.Loc) < 2 {
			return false
		}
		name, ok := fault.Loc[1].(string)
		return ok && slices.Contains(fields, name)
	})
}

// Value records that the value at loc breaks a rule that has no type of its
// own.
func (f *Faults) Value(msg string, loc ...any) {
	f.Add(Fault{
		Type: "value_error", Loc: loc, Msg: "Value error, " + msg,
		Ctx: map[string]any{"error": msg},
	})
}

// Missing adds the fault of a field that has to be there.
func (f *Faults) Missing(loc ...any) { f.add(typeMissing, nil, loc) }

// AtMost records that the number at loc is over limit.
func (f *Faults) AtMost(limit int64, loc ...any) {
	f.Add(Fault{
		Type: "less_than_equal", Loc: loc,
		Msg: fmt.Sprintf("Input should be less than or equal to %d", limit),
		Ctx: map[string]any{"le": limit},
	})
}

// Types that have one message each.
const (
	typeMissing = "missing"
	typeString  = "string_type"
	typeInt     = "int_type"
	typeBool    = "bool_type"
	typeList    = "list_type"
	typeDict    = "dict_type"
	typeDecimal = "decimal_type"
)

// add records a fault of one of the types that have one message each.
func (f *Faults) add(kind string, input json.RawMessage, loc []any) {
	msg := "Field required"
	switch kind {
	case typeString:
		msg = "Input should be a valid string"
	case typeInt:
		msg = "Input should be a valid integer"
	case typeBool:
		msg = "Input should be a valid boolean"
	case typeList:
		msg = "Input should be a valid list"
	case typeDict:
		msg = "Input should be a valid dictionary"
	case typeDecimal:
		msg = "Decimal input should be an integer, float, string or Decimal object"
	}
	f.Add(Fault{Type: kind, Loc: loc, Msg: msg, Input: input})
}

// invalidJSON records that the text at loc is not JSON that is accepted here.
func (f *Faults) invalidJSON(why string, loc ...any) {
	f.Add(Fault{
		Type: "json_invalid", Loc: loc, Msg: "JSON decode error",
		Input: json.RawMessage("{}"), Ctx: map[string]any{"error": why},
	})
}
