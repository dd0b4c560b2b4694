package berth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an answer of the API that refuses a call.
type Error struct {
	Status     int     // HTTP status.
	Code       string  // Stable snake_case name; "validation" for a 422.
	Detail     string  // For people.
	Faults     []Fault // Faults of a 422.
	RequestID  string
	RetryAfter time.Duration // Zero when the answer names none.
}

// Fault is one thing wrong with a request.
type Fault struct {
	Loc  []any  `json:"loc"` // Strings and numbers: the way to the faulty value.
	Msg  string `json:"msg"`
	Type string `json:"type"`
}

// String returns the fault in one line.
func (f Fault) String() string {
	parts := make([]string, len(f.Loc))
	for i, part := range f.Loc {
		parts[i] = fmt.Sprint(part)
	}
	return strings.Join(parts, ".") + ": " + f.Msg
}

// Error returns the detail and every fault, for people.
func (e *Error) Error() string {
	text := e.Detail
	for _, fault := range e.Faults {
		text += "\n  " + fault.String()
	}
	return text
}

// CodeOf returns the stable name that err carries, "" when it is no answer of
// the API.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// errorOf reads a refusal. It always returns an error.
func errorOf(status int, header http.Header, body []byte) *Error {
	e := &Error{Status: status, RequestID: header.Get("X-Request-Id"), RetryAfter: retryAfter(header)}
	var answer struct {
		Detail json.RawMessage `json:"detail"`
		Code   string          `json:"code"`
	}
	if json.Unmarshal(body, &answer) == nil {
		e.Code = answer.Code
		if json.Unmarshal(answer.Detail, &e.Detail) != nil && json.Unmarshal(answer.Detail, &e.Faults) == nil {
			e.Code, e.Detail = "validation", "the request is not valid"
		}
	}
	if e.Detail == "" {
		e.Detail = fmt.Sprintf("the node answered %d %s", status, http.StatusText(status))
		if e.RequestID == "" && status < http.StatusInternalServerError {
			e.Detail = fmt.Sprintf("the answer is not one of Berth: %d %s; check the address, and HTTP_PROXY and NO_PROXY",
				status, http.StatusText(status))
		}
	}
	return e
}

// retryAfter reads the header Retry-After, seconds only.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > int(time.Hour.Seconds()) {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// codeInFlight is the code of a repeat while the node is still busy with the
// first request.
const codeInFlight = "idempotency_in_flight"

// temporary reports whether another node, or the same one later, may serve
// what was refused.
func (e *Error) temporary() bool { return temporary(e.Status) || e.Code == codeInFlight }

// temporary reports whether another node, or the same one later, may serve
// what was answered with status.
func temporary(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
