package compute

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the kind of failure of an Error. It selects the HTTP status and is
// the label of the error metrics.
type Code string

// The codes. api maps each to its HTTP status in one table.
const (
	CodeInvalid          Code = "invalid"            // Well formed, but breaks a rule.
	CodeConflict         Code = "conflict"           // The state does not allow it.
	CodeUnauthenticated  Code = "unauthenticated"    // Missing, bad or expired credential.
	CodeForbidden        Code = "forbidden"          // This caller is not allowed.
	CodeNotFound         Code = "not_found"          // Absent, or not visible to this caller.
	CodeTooLarge         Code = "too_large"          // Over a named limit.
	CodeRateLimited      Code = "rate_limited"       // Too many requests.
	CodeNoSpace          Code = "no_space"           // The disk is full.
	CodeMethodNotAllowed Code = "method_not_allowed" // Known path, other method.
	CodeTimeout          Code = "timeout"            // The client was too slow.
	CodeUnsupportedMedia Code = "unsupported_media"  // Wrong content type.
	CodeNoCapacity       Code = "no_capacity"        // Nothing can be provisioned now.
	CodeUnavailable      Code = "unavailable"        // No leader, or a part is down.
	CodeInternal         Code = "internal"           // A fault of Berth; the user gets no detail.
)

// Error is a failure with a code. Message is for the user, Err for the
// operator: it is logged and never sent.
type Error struct {
	Code       Code          `cbor:"1,keyasint"`
	Message    string        `cbor:"2,keyasint"`
	Detail     string        `cbor:"3,keyasint,omitempty"` // Stable snake_case name of the case; Code when empty.
	RetryAfter time.Duration `cbor:"4,keyasint,omitempty"` // When to retry; zero for no hint.
	Err        error         `cbor:"-"`
}

// Errorf returns an Error with a formatted message. It is never nil. An
// argument for %w becomes Err, and its text a part of the message: Because keeps it out.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Named returns e with the stable name of its case, for client programs.
func (e *Error) Named(detail string) *Error {
	e.Detail = detail
	return e
}

// Because returns e with the operator's error, which is not in the message: addresses of
// the cluster and what programs of others sent are not for the user.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Retry returns e with a hint when to retry.
func (e *Error) Retry(after time.Duration) *Error {
	e.RetryAfter = after
	return e
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the operator's error.
func (e *Error) Unwrap() error { return e.Err }

// Detailed returns err with the operator's error in its text, if that is not there yet. It is for
// logs, and for answers to operators.
func Detailed(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Err != nil && !strings.Contains(err.Error(), e.Err.Error()) {
		return fmt.Errorf("%w: %w", err, e.Err)
	}
	return err
}

// NeedsUpgrade reports whether err is the refusal of something that a server of the cluster
// does not understand yet.
func NeedsUpgrade(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Detail == "upgrade_required"
}

// CodeOf returns the code that err carries: "" for nil, CodeInternal when it
// carries none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// MessageOf returns the part of err that the user may read: "Internal error."
// when err has no code or is internal.
func MessageOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Code != CodeInternal {
		return e.Message
	}
	return "Internal error."
}
