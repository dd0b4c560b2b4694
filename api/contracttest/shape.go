package contracttest

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// kind is the type of a field as the specification names it.
type kind int

const (
	text kind = iota
	dateTime
	number
	integer
	boolean
	object
	integers // Object of integers.
	list     // Array of the shape in field.of.
	inner    // Object of that shape.
	anything
)

// field is one field of a shape.
type field struct {
	name     string
	kind     kind
	nullable bool
	optional bool
	of       *shape
}

// shape is a resource as the specification shows it.
type shape struct {
	name   string
	fields []field
}

// check returns the differences of value from the shape.
func (s *shape) check(value any) []error {
	members, ok := value.(map[string]any)
	if !ok {
		return []error{fmt.Errorf("%s is %T, want an object", s.name, value)}
	}
	var faults []error
	for _, f := range s.fields {
		v, there := members[f.name]
		switch {
		case !there && f.optional:
		case !there:
			faults = append(faults, fmt.Errorf("%s.%s is missing", s.name, f.name))
		case v == nil && f.nullable:
		default:
			faults = append(faults, f.check(s.name+"."+f.name, v)...)
		}
	}
	return faults
}

// check returns the differences of v from the field.
func (f field) check(where string, v any) []error {
	good := false
	switch f.kind {
	case text:
		_, good = v.(string)
	case dateTime:
		s, isText := v.(string)
		_, err := time.Parse(time.RFC3339Nano, s)
		good = isText && err == nil
	case number:
		_, good = v.(float64)
	case integer:
		n, isNumber := v.(float64)
		good = isNumber && n == math.Trunc(n)
	case boolean:
		_, good = v.(bool)
	case object:
		_, good = v.(map[string]any)
	case integers:
		good = isIntegers(v)
	case list:
		return checkList(where, v, f.of)
	case inner:
		return f.of.check(v)
	case anything:
		good = true
	}
	if good {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte(err.Error())
	}
	return []error{fmt.Errorf("%s is %s, which is not of its type", where, data)}
}

// isIntegers reports whether v is an object of integers.
func isIntegers(v any) bool {
	members, ok := v.(map[string]any)
	for _, m := range members {
		n, isNumber := m.(float64)
		ok = ok && isNumber && n == math.Trunc(n)
	}
	return ok
}

// checkList returns the differences of v from an array of s.
func checkList(where string, v any, s *shape) []error {
	items, ok := v.([]any)
	if !ok {
		return []error{fmt.Errorf("%s is %T, want an array", where, v)}
	}
	var faults []error
	for _, item := range items {
		faults = append(faults, s.check(item)...)
	}
	return faults
}

// nullables returns the fields with names, each of a kind and nullable.
func nullables(k kind, names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name, kind: k, nullable: true, optional: true})
	}
	return out
}

// executionSummary is ExecutionSummary: an element of the history list.
func executionSummary() *shape {
	s := &shape{name: "ExecutionSummary", fields: []field{
		{name: "execution_id", kind: text},
		{name: "created_at", kind: dateTime},
		{name: "execution_type", kind: text},
		{name: "status", kind: text},
		{name: "hardware_profile", kind: text},
	}}
	s.fields = append(s.fields, nullables(text, "status_details", "local_imports", "execelet_start",
		"start_time", "end_time", "finish_time", "file_name", "errors_docker", "parent_execution_id",
		"job_type", "user_id", "org_id")...)
	s.fields = append(s.fields, nullables(dateTime, "job_start", "job_end")...)
	s.fields = append(s.fields, nullables(number, "billed", "provider_billed")...)
	s.fields = append(s.fields, nullables(object, "metadata")...)
	return s
}

// executionHistory is ExecutionHistory.
func executionHistory() *shape {
	return &shape{name: "ExecutionHistory", fields: []field{
		{name: "executions", kind: list, of: executionSummary()},
		{name: "total_executions", kind: integer},
		{name: "total_credits_spent", kind: number},
		{name: "counts_by_status", kind: integers, optional: true},
		{name: "limit", kind: integer},
		{name: "offset", kind: integer},
	}}
}

// keyRecord is the API key record. A key need not expire, nor have been used.
func keyRecord() *shape {
	return &shape{name: "API key record", fields: []field{
		{name: "id", kind: text},
		{name: "org_id", kind: text},
		{name: "name", kind: text},
		{name: "prefix", kind: text},
		{name: "is_active", kind: boolean},
		{name: "created_at", kind: dateTime},
		{name: "expires_at", kind: dateTime, nullable: true},
		{name: "last_used_at", kind: dateTime, nullable: true},
	}}
}

// creditsDetails is the credits details.
func creditsDetails() *shape {
	return &shape{name: "Credits details", fields: []field{
		{name: "user_id", kind: text},
		{name: "email", kind: text},
		{name: "available_credits", kind: number},
		{name: "used_credits", kind: number},
		{name: "total_credits_used", kind: number},
		{name: "created_at", kind: dateTime},
		{name: "last_updated", kind: dateTime},
		{name: "payment_customer_id", kind: text},
	}}
}

// loginResponse is the answer to a login and to a refresh.
func loginResponse() *shape {
	return &shape{name: "Login response", fields: []field{
		{name: "access_token", kind: text},
		{name: "refresh_token", kind: text},
	}}
}

// selectionStarted answers the start of a GPU selection.
func selectionStarted() *shape {
	return &shape{name: "GPU selection", fields: []field{
		{name: "execution_id", kind: text},
		{name: "status", kind: text},
		{name: "message", kind: text},
	}}
}

// started answers the start of an execution, of which only the identifier is
// certain.
func started() *shape {
	return &shape{name: "Execution", fields: []field{{name: "execution_id", kind: text}}}
}

// anyObject is JSON of which the shape is not shown.
func anyObject() *shape { return &shape{name: "Answer"} }

// failure is the shape of every failure but 422.
func failure() *shape {
	return &shape{name: "Failure", fields: []field{{name: "detail", kind: anything}}}
}

// validationError is HTTPValidationError.
func validationError() *shape {
	item := &shape{name: "ValidationError", fields: []field{
		{name: "loc", kind: anything},
		{name: "msg", kind: text},
		{name: "type", kind: text},
		{name: "input", kind: anything, optional: true, nullable: true},
		{name: "ctx", kind: object, optional: true},
	}}
	return &shape{name: "HTTPValidationError", fields: []field{{name: "detail", kind: list, of: item}}}
}
