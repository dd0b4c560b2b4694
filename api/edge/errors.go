package edge

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/wire"
	"berth/compute"
)

// retryDefault is when a client may repeat what was unavailable.
const retryDefault = time.Second

// statusOf returns the HTTP status for a code.
func statusOf(code compute.Code) int {
	switch code {
	case compute.CodeInvalid:
		return fasthttp.StatusBadRequest
	case compute.CodeConflict:
		return fasthttp.StatusConflict
	case compute.CodeUnauthenticated:
		return fasthttp.StatusUnauthorized
	case compute.CodeForbidden:
		return fasthttp.StatusForbidden
	case compute.CodeNotFound:
		return fasthttp.StatusNotFound
	case compute.CodeTooLarge:
		return fasthttp.StatusRequestEntityTooLarge
	case compute.CodeRateLimited:
		return fasthttp.StatusTooManyRequests
	case compute.CodeNoSpace:
		return fasthttp.StatusInsufficientStorage
	case compute.CodeMethodNotAllowed:
		return fasthttp.StatusMethodNotAllowed
	case compute.CodeTimeout:
		return fasthttp.StatusRequestTimeout
	case compute.CodeUnsupportedMedia:
		return fasthttp.StatusUnsupportedMediaType
	case compute.CodeUnavailable:
		return fasthttp.StatusServiceUnavailable
	case compute.CodeNoCapacity, compute.CodeInternal:
		return fasthttp.StatusInternalServerError
	}
	return fasthttp.StatusInternalServerError
}

// failure is an error as sent to the client.
type failure struct {
	status     int
	body       any
	retryAfter string
}

// failureOf returns the client's view of err.
func failureOf(err error) failure {
	if faults, ok := errors.AsType[*wire.Faults](err); ok {
		return failure{status: fasthttp.StatusUnprocessableEntity, body: faults}
	}
	if isDeadline(err) {
		err = compute.Errorf(compute.CodeUnavailable, "The cluster did not answer in time.").Named("timeout")
	}
	code := compute.CodeOf(err)
	body := wire.Error{Detail: compute.MessageOf(err), Code: string(code)}
	f := failure{status: statusOf(code)}
	if e, ok := errors.AsType[*compute.Error](err); ok && code != compute.CodeInternal {
		if e.Detail != "" {
			body.Code = e.Detail
		}
		f.retryAfter = retryAfter(e)
		switch e.Detail {
		case preconditionFailed:
			f.status = fasthttp.StatusPreconditionFailed
		case unaskedSwitch:
			f.status, f.retryAfter = fasthttp.StatusBadGateway, ""
		}
	}
	f.body = body
	return f
}

// isDeadline reports whether err is only an exceeded request deadline.
func isDeadline(err error) bool {
	if _, ok := errors.AsType[*compute.Error](err); ok {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// retryAfter returns the value of the header Retry-After, "" for none.
func retryAfter(e *compute.Error) string {
	after := e.RetryAfter
	if after == 0 && (e.Code == compute.CodeUnavailable || e.Code == compute.CodeRateLimited) {
		after = retryDefault
	}
	if after <= 0 {
		return ""
	}
	seconds := (after + time.Second - 1) / time.Second
	return strconv.FormatInt(int64(seconds), 10)
}

// NotFound is the same answer for absent and for foreign objects.
func NotFound() error { return compute.Errorf(compute.CodeNotFound, "No such resource.") }

// errUnauthenticated is the same answer to every bad credential.
func errUnauthenticated() error {
	return compute.Errorf(compute.CodeUnauthenticated, "The bearer token is missing, invalid or expired.")
}

// errOrgHeader is the one answer to an X-Org-Slug that is not the caller's,
// whether there is such an organization or not.
func errOrgHeader() error {
	return compute.Errorf(compute.CodeForbidden, "X-Org-Slug names no organization of yours.").Named("org_forbidden")
}
