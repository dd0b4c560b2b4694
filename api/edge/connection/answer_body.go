package connection

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// WriteTimeout is how long a client may take for each piece of an answer.
const WriteTimeout = 30 * time.Second

// copyBuffer is how many bytes of a stream are copied at a time.
const copyBuffer = 32 << 10

// AnswerBody is a body on its way to the client, which has some time for each piece.
type AnswerBody struct {
	From io.ReadCloser
	Conn net.Conn
	End  func()
}

// Read implements io.Reader.
func (b *AnswerBody) Read(p []byte) (int, error) {
	n, err := b.From.Read(p)
	if n > 0 {
		if err := b.Conn.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil {
			return 0, err
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.Conn.Close() // A client must not take a cut answer for a whole one.
	}
	return n, err
}

// Close is called by fasthttp once the answer was written, or cannot be.
func (b *AnswerBody) Close() error {
	defer b.End()
	return b.From.Close()
}

// PatientWriter extends the write deadline with each piece that the client
// takes.
type PatientWriter struct {
	Conn net.Conn
	To   io.Writer
}

// Write implements io.Writer.
func (p PatientWriter) Write(data []byte) (int, error) {
	if err := p.Conn.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil {
		return 0, err
	}
	return p.To.Write(data)
}

// CopyStream writes body to a client as it comes, until it ends or the client
// is gone.
func CopyStream(w *bufio.Writer, body io.Reader, conn net.Conn) {
	buf := make([]byte, copyBuffer)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if conn.SetWriteDeadline(time.Now().Add(WriteTimeout)) != nil {
				return
			}
			if _, e := w.Write(buf[:n]); e != nil || w.Flush() != nil {
				return // The client is gone.
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			conn.Close() // A client must not take a cut answer for a whole one.
			return
		}
	}
}

// Pipe copies both directions until one ends or ctx does, and closes both.
func Pipe(ctx context.Context, a net.Conn, b io.ReadWriteCloser) {
	shut := sync.OnceFunc(func() {
		_ = a.SetDeadline(time.Unix(1, 0)) // Its owner closes it.
		b.Close()
	})
	defer shut()
	defer context.AfterFunc(ctx, shut)()
	var group sync.WaitGroup
	for _, way := range []struct {
		to   io.Writer
		from io.Reader
	}{{a, b}, {b, a}} {
		group.Go(func() {
			defer shut()
			_, _ = io.CopyBuffer(struct{ io.Writer }{way.to}, struct{ io.Reader }{way.from}, make([]byte, copyBuffer))
		})
	}
	group.Wait()
}
