package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"berth/api/edge"
	"berth/loop"
)

const (
	maxEvent   = 4 << 20          // Of a stream of output.
	streamIdle = 15 * time.Second // Without a byte to the client.
)

// relayedStream is the stream of an execution's output through a worker. It
// hands on whole events only; when a server is lost, another one goes on
// behind the last event that has an id. The last event of a stream is the one
// with data and without an id.
type relayedStream struct {
	relay *Relay
	ctx   context.Context //nolint:containedctx // Of the client's request; it ends with the stream.
	in    edge.Relayed
	body  io.ReadCloser // Nil while no server serves it.

	ready []byte // Whole events.
	part  []byte // The beginning of the next one.
	ended bool   // The last event was there.
}

// Read returns events, and io.EOF behind the last one.
func (s *relayedStream) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// more reads on, at another server if need be.
func (s *relayedStream) more() error {
	if s.body == nil {
		if err := s.reopen(); err != nil || s.body == nil {
			return err
		}
	}
	buf := make([]byte, 32<<10)
	n, err := s.body.Read(buf)
	s.part = append(s.part, buf[:n]...)
	s.take()
	if len(s.part) > maxEvent {
		return errors.New("an event of the stream is too long")
	}
	if err != nil && !s.ended {
		s.lose()
	}
	return s.ctx.Err()
}

// take moves the whole events of part to ready.
func (s *relayedStream) take() {
	for {
		end := bytes.Index(s.part, []byte("\n\n"))
		if end < 0 {
			return
		}
		event := s.part[:end+2]
		s.ready = append(s.ready, event...)
		s.note(event)
		s.part = s.part[end+2:]
	}
}

// note keeps where the stream is.
func (s *relayedStream) note(event []byte) {
	id, data := "", false
	for line := range bytes.Lines(event) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if text, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			id = string(text)
		}
		data = data || bytes.HasPrefix(line, []byte("data: "))
	}
	if id != "" {
		s.in.LastEventID = id
	}
	s.ended = data && id == ""
}

// lose gives up the server; what came of the next event comes again.
func (s *relayedStream) lose() {
	s.body.Close()
	s.body, s.part = nil, nil
}

// reopen has a server go on with the stream. One that refuses to cuts it: the
// client asks again, and gets the reason. While no server answers it returns now and
// then without one, and a comment to hand on: it shows whether the client waits.
func (s *relayedStream) reopen() error {
	for range streamIdle / relayRetry {
		answer, err := s.relay.once(s.ctx, s.in)
		switch {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case err == nil && answer.Stream && answer.Status == http.StatusOK:
			s.body = answer.Body
			return nil
		case err == nil:
			err := answer.Body.Close()
			if answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusTooManyRequests {
				return errors.Join(errCut, err)
			}
		}
		loop.Sleep(s.ctx, relayRetry)
	}
	s.ready = append(s.ready, ":\n\n"...)
	return nil
}

// Close ends the stream.
func (s *relayedStream) Close() error {
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}
