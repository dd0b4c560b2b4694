package openai

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// brokenStream is the event of a stream whose replica has ended.
const brokenStream = "\n\ndata: {\"error\":{\"message\":\"The replica ended in the middle of its answer: " +
	"repeat the request.\"," +
	"\"type\":\"server_error\",\"param\":null,\"code\":\"replica_failed\"}}\n\n"

// silentStream is the event of a stream whose engine was silent for too long.
const silentStream = "\n\ndata: {\"error\":{\"message\":\"The engine sent nothing for too long: " +
	"repeat the request.\"," +
	"\"type\":\"server_error\",\"param\":null,\"code\":\"" + engineTimeout + "\"}}\n\n"

// EndWithEvent has the stream of an answer, if it is one, end with an error event where it is
// cut off.
func EndWithEvent(answer *http.Response) {
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body = newEventBody(answer.Body)
	}
}

// eventBody is a stream of events that ends with an error event if its replica ends. It passes
// on whole lines as they come: the error event could not follow a part of one. It has no memory
// of its own while reads end with lines, as they usually do.
type eventBody struct {
	from  io.ReadCloser
	line  []byte // The beginning of a line, of at most maxEventLine bytes.
	out   []byte
	ready []byte // The part of out that is to be passed on,
	err   error  // and then this, if not nil.
}

func newEventBody(from io.ReadCloser) *eventBody { return &eventBody{from: from} }

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if n := b.fill(p); n > 0 {
			return n, nil
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// fill reads once from the engine, into p. It returns how much of p is passed on: nothing if
// that is in ready.
func (b *eventBody) fill(p []byte) int {
	n, err := b.from.Read(p)
	data := p[:n]
	end := bytes.LastIndexAny(data, "\r\n") + 1
	if len(b.line) == 0 && end > 0 && err == nil {
		b.line = append(b.line, data[end:]...)
		return end
	}
	b.out = b.out[:0]
	if end > 0 || len(b.line)+n > maxEventLine || errors.Is(err, io.EOF) {
		b.out = append(b.out, b.line...)
		b.line = b.line[:0]
		if end == 0 || errors.Is(err, io.EOF) {
			end = n
		}
	}
	b.out = append(b.out, data[:end]...)
	b.line = append(b.line, data[end:]...)
	if err != nil {
		b.err = io.EOF
	}
	switch {
	case IsTimeout(err):
		b.out = append(b.out, silentStream...)
	case err != nil && !errors.Is(err, io.EOF):
		b.out = append(b.out, brokenStream...)
	}
	b.ready = b.out
	return 0
}

// Close ends the engine's work.
func (b *eventBody) Close() error { return b.from.Close() }
