package api

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Media types of streams.
const (
	octetStream = "application/octet-stream" // A file that is nothing else.
	eventStream = "text/event-stream"
)

// download is an answer that is a file too large to hold in memory. It shows by
// itself where it was cut, because no status can say so any more.
type download func(w io.Writer) error

// download has write send the body.
func (s *Server) download(ctx *fasthttp.RequestCtx, write download) {
	ctx.SetContentType(octetStream)
	conn := ctx.Conn()
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		if err := write(patientWriter{conn, w}); err != nil {
			s.log.Warn("download ended early", "err", err)
		}
	})
}

// patientWriter gives the client new time with each piece that it takes.
type patientWriter struct {
	conn net.Conn
	w    *bufio.Writer
}

func (p patientWriter) Write(data []byte) (int, error) {
	if err := p.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.w.Write(data)
}
