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
	maxEvent   = 4 << 20          // Bytes of an event of a stream of output.
	eventPiece = 32 << 10         // Bytes that are read at a time.
	streamIdle = 15 * time.Second // Without a byte to the client.
)

// relayedStream is the stream of an execution's output through a worker. It
// hands on whole events only; when a server is lost, another one goes on
// behind the last event that has an id. The last event of a stream is the one
// with data and without an id.
type relayedStream struct {
	relay *Relay
	ctx   context.Context //nolint:containedctx // Lives for the client's request; ends with the stream.
	in    edge.Relayed
	body  io.ReadCloser // Nil while no server serves it.

	buf   bytes.Buffer // Whole events, then the beginning of the next one.
	whole int          // Bytes of the whole ones.
	ended bool         // The last event was there.
}

// Read returns events, and io.EOF behind the last one.
func (s *relayedStream) Read(p []byte) (int, error) {
	for s.whole == 0 {
		if s.ended {
			return 0, io.EOF
		}
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	n, err := s.buf.Read(p[:min(len(p), s.whole)])
	s.whole -= n
	return n, err
}

// more reads on, at another server if need be.
func (s *relayedStream) more() error {
	if s.body == nil {
		if err := s.reopen(); err != nil || s.body == nil {
			return err
		}
	}
	s.buf.Grow(eventPiece)
	piece := s.buf.AvailableBuffer()[:eventPiece]
	n, err := s.body.Read(piece)
	s.buf.Write(piece[:n])
	s.take()
	if s.buf.Len()-s.whole > maxEvent {
		return errors.New("an event of the stream is too long")
	}
	if err != nil && !s.ended {
		s.lose()
	}
	return s.ctx.Err()
}

// take counts the whole events.
func (s *relayedStream) take() {
	for {
		part := s.buf.Bytes()[s.whole:]
		end := bytes.Index(part, []byte("\n\n"))
		if end < 0 {
			return
		}
		s.note(part[:end+2])
		s.whole += end + 2
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

// lose gives up the server. A part of the next event is dropped and comes
// again.
func (s *relayedStream) lose() {
	s.body.Close()
	s.body = nil
	s.buf.Truncate(s.whole)
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
	n, err := s.buf.WriteString(":\n\n")
	s.whole += n
	return err
}

// Close ends the stream.
func (s *relayedStream) Close() error {
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}
