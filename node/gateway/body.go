package gateway

import (
	"context"
	"io"
)

// body is the body of an answer. The server has it written to the connection: chunk by
// chunk, without a copy in between. Others read it. Its methods are for one goroutine.
type body struct {
	copy func(w io.Writer) (int64, error)
	end  context.CancelFunc // Ends copy.
	pipe *io.PipeReader     // Read reads it; nil before the first call.
}

// WriteTo implements io.WriterTo.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.pipe != nil {
		return io.Copy(w, b.pipe)
	}
	return b.copy(w)
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.pipe == nil {
		read, write := io.Pipe()
		b.pipe = read
		go func() {
			_, err := b.copy(write)
			write.CloseWithError(err) // Nil is io.EOF.
		}()
	}
	return b.pipe.Read(p)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end()
	if b.pipe != nil {
		return b.pipe.Close()
	}
	return nil
}

// bodyWriter counts what is written, and knows whether that failed: the client is gone then,
// which is no failure of the object.
type bodyWriter struct {
	io.Writer

	n      int64
	failed bool
}

// Write implements io.Writer.
func (b *bodyWriter) Write(p []byte) (int, error) {
	n, err := b.Writer.Write(p)
	b.n, b.failed = b.n+int64(n), b.failed || err != nil
	return n, err
}
