package edge

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// OctetStream is the media type of a file that is nothing else.
const OctetStream = "application/octet-stream"

// Download is an answer too large to hold in memory. The file format itself
// reveals truncation, because the status is already sent.
type Download func(w io.Writer) error

// download streams the body that write produces.
func (s *Server) download(ctx *fasthttp.RequestCtx, write Download) {
	ctx.SetContentType(OctetStream)
	conn := ctx.Conn()
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		if err := write(patientWriter{conn, w}); err != nil {
			s.log.Warn("download ended early", "err", err)
		}
	})
}

// patientWriter extends the write deadline with each piece that the client
// takes.
type patientWriter struct {
	conn net.Conn
	w    *bufio.Writer
}

// Write implements io.Writer.
func (p patientWriter) Write(data []byte) (int, error) {
	if err := p.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.w.Write(data)
}
