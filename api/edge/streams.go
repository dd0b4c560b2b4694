package edge

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/answer"
	"berth/api/edge/connection"
	"berth/compute"
)

// Limits of streams and held answers.
const (
	orgStreamShare    = 4  // The part of Limits.Streams that one organization may have: a quarter,
	callerStreamShare = 16 // and one key or user: a sixteenth. A stream takes 32 KiB, and up to 112 KiB if nobody reads.
	maxDownloads      = 16 // Downloads of operators at once, beside Limits.Streams.
)

// TakeStream counts a stream or a held answer of an organization and of the key
// or user that asked, if it was one. The caller calls release at its end.
func (c *Core) TakeStream(r *Request, org compute.OrgID) (release func(), err error) {
	busy := compute.Errorf(compute.CodeUnavailable, "This node has too many open streams.").Named("too_many_streams")
	who := r.Caller.name()
	if !c.orgStreams.Take(org.String(), 1) {
		return nil, busy
	}
	if who != "" && !c.callerStreams.Take(who, 1) {
		c.orgStreams.Give(org.String(), 1)
		return nil, busy
	}
	c.metrics.streams.Inc()
	return func() {
		c.orgStreams.Give(org.String(), 1)
		if who != "" {
			c.callerStreams.Give(who, 1)
		}
		c.metrics.streams.Dec()
	}, nil
}

// TakeDownload counts a download of an operator.
func (c *Core) TakeDownload() (release func(), err error) {
	const owner = "operators"
	if !c.downloads.Take(owner, 1) {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"This node serves too many downloads.").Named("too_many_streams")
	}
	c.metrics.streams.Inc()
	return func() {
		c.downloads.Give(owner, 1)
		c.metrics.streams.Dec()
	}, nil
}

// stream sends the body that write produces.
func (s *Server) stream(ctx *fasthttp.RequestCtx, r *Request, write answer.Events) {
	ctx.SetContentType(answer.EventStream)
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	within, cancel := context.WithCancel(r.life.soft)
	if r.handedOn {
		s.streamHandedOn(within, ctx, cancel, write)
		return
	}
	framed := ctx.Request.Header.IsHTTP11()
	ctx.Response.Header.Add("Vary", "Accept-Encoding")
	zipped := ctx.Request.Header.HasAcceptEncoding("gzip")
	if zipped {
		ctx.Response.Header.Set("Content-Encoding", "gzip")
	}
	head := eventsHead(&ctx.Response, framed)
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(taken net.Conn) {
		conn := taken
		if below, ok := taken.(interface{ UnsafeConn() net.Conn }); ok {
			conn = below.UnsafeConn() // The buffer above it has what the client sent early, which counts for nothing.
		}
		s.streaming.Go(func() {
			defer conn.Close()
			defer cancel()
			connection.Watch(conn, cancel)
			w := answer.NewEventWriter(conn, conn, framed, &s.events)
			if zipped {
				w.Compress()
			}
			if conn.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)) != nil {
				return
			}
			if _, err := conn.Write(head); err != nil {
				return
			}
			head = nil
			write(within, w)
			if within.Err() == nil {
				w.End()
			}
		})
	})
}

// eventsHead returns the head of an answer of events. A client of HTTP/1.0 reads until the
// connection ends.
func eventsHead(response *fasthttp.Response, framed bool) []byte {
	head := []byte("HTTP/1.1 200 OK\r\n")
	own := ownHeaders()
	for name, value := range response.Header.All() {
		if !isOneOf(name, own) {
			head = append(head, name...)
			head = append(head, ": "...)
			head = append(append(head, value...), "\r\n"...)
		}
	}
	head = append(head, "Date: "...)
	head = append(fasthttp.AppendHTTPDate(head, time.Now()), "\r\n"...) //nolint:forbidigo // The calendar's.
	if framed {
		head = append(head, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(head, "Connection: close\r\n\r\n"...)
}

func isOneOf(name []byte, names []string) bool {
	for _, n := range names {
		if bytes.EqualFold(name, []byte(n)) {
			return true
		}
	}
	return false
}

// streamHandedOn sends the body that write produces to the node that asked for it.
func (s *Server) streamHandedOn(within context.Context, ctx *fasthttp.RequestCtx, cancel func(), write answer.Events) {
	conn := ctx.Conn()
	// From here on the writer moves the deadline, with every event.
	if err := ctx.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)); err != nil {
		s.log.Debug("connection error", "err", err)
	}
	ctx.SetConnectionClose() // The watch reads from it.
	connection.Watch(conn, cancel)
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer cancel()
		write(within, answer.NewEventWriter(conn, flushing{w}, false, &s.events))
	})
}

// flushing is a writer that keeps nothing back.
type flushing struct{ w *bufio.Writer }

// Write implements io.Writer.
func (f flushing) Write(data []byte) (int, error) {
	n, err := f.w.Write(data)
	if err == nil {
		err = f.w.Flush()
	}
	return n, err
}
