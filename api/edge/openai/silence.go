package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"berth/compute"
)

// errSilent is the cause of the end of a request whose engine was silent for too long.
var errSilent = errors.New("the engine is silent")

// engineTimeout is the code of the error for it.
const engineTimeout = "engine_timeout"

// engineSilent is the error of a request whose engine was silent for so long.
func engineSilent(limit time.Duration) error {
	return compute.Errorf(compute.CodeUnavailable, "The engine sent nothing for %s.", limit).Named(engineTimeout)
}

// IsTimeout reports whether err is that of a silent engine.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[*compute.Error](err)
	return ok && e.Detail == engineTimeout
}

// InTime has ask send a request. An engine that sends no first byte within limit, or none in so
// long while the node reads its answer, ends the request: the error is engine_timeout, and the
// engine's work is cancelled. There is no limit if it is not positive.
func InTime(
	req *http.Request, limit time.Duration, ask func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	if limit <= 0 {
		return ask(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(errSilent) })
	answer, err := ask(req.WithContext(ctx))
	timer.Stop()
	silent := errors.Is(context.Cause(ctx), errSilent)
	if err == nil && silent { // It came too late: its body is cancelled.
		answer.Body.Close()
	}
	if err != nil || silent {
		cancel(nil)
		if silent {
			err = engineSilent(limit)
		}
		return nil, err
	}
	answer.Body = &timedBody{from: answer.Body, ctx: ctx, cancel: cancel, timer: timer, limit: limit}
	return answer, nil
}

// timedBody is an answer of an engine that may not be silent for longer than a limit. The
// time in which nobody reads does not count: a slow client is not the engine's fault.
type timedBody struct {
	from   io.ReadCloser
	ctx    context.Context //nolint:containedctx // Lives for the request.
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.from.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errSilent) {
		err = engineSilent(b.limit)
	}
	return n, err
}

// Close ends the engine's work.
func (b *timedBody) Close() error {
	b.timer.Stop()
	err := b.from.Close()
	b.cancel(nil)
	return err
}
