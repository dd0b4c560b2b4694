package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// EventStream is the media type of events.
const EventStream = "text/event-stream"

// Events is a streamed answer. It runs in its own goroutine until it returns or
// a write fails.
// Its context ends when the client hangs up, and when streams have to end.
type Events func(ctx context.Context, w *EventWriter)

// EventWriter writes server-sent events to one client.
type EventWriter struct {
	conn net.Conn
	w    *bufio.Writer
}

// Event writes one event with data as JSON. The client gets it at the next
// flush.
func (e *EventWriter) Event(id string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if id != "" {
		e.w.WriteString("id: " + id + "\n") //nolint:errcheck // The writer keeps its error for Flush.
	}
	e.w.WriteString("data: ") //nolint:errcheck // As above.
	e.w.Write(text)           //nolint:errcheck // As above.
	_, err = e.w.WriteString("\n\n")
	return err
}

// Comment writes a line that clients ignore.
func (e *EventWriter) Comment() error {
	if _, err := e.w.WriteString(": berth\n\n"); err != nil {
		return err
	}
	return e.Flush()
}

// Flush sends buffered data and extends the write deadline.
func (e *EventWriter) Flush() error {
	if err := e.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return e.w.Flush()
}

// stream sends the body that write produces.
func (s *Server) stream(ctx *fasthttp.RequestCtx, r *Request, write Events) {
	ctx.SetContentType(EventStream)
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	conn := ctx.Conn()
	// From here on the writer moves the deadline, with every event.
	if err := ctx.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		s.log.Debug("connection error", "err", err)
	}
	ctx.SetConnectionClose() // The watch reads from it.
	within, cancel := context.WithCancel(r.life.soft)
	watchClient(conn, cancel)
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer cancel()
		write(within, &EventWriter{conn, w})
	})
}
