package answer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/iotest"
	"time"
)

// deadlines is a connection that counts the deadlines of writes.
type deadlines struct {
	net.Conn

	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	d.set++
	return nil
}

// leaving is a writer that fails once it has so many pieces.
type leaving struct {
	got  [][]byte
	most int
}

func (p *leaving) Write(data []byte) (int, error) {
	if len(p.got) == p.most {
		return 0, errors.New("the client is gone")
	}
	p.got = append(p.got, bytes.Clone(data))
	return len(data), nil
}

// TestFileReader holds that a file is written in pieces, each of which has its time, that it
// can be read instead, and that the end of either ends what makes it.
func TestFileReader(t *testing.T) {
	data := bytes.Repeat([]byte("file"), filePiece) // Four pieces.
	begin := func() (*fileReader, *deadlines, context.Context) {
		ctx, cancel := context.WithCancel(t.Context())
		conn := new(deadlines)
		return &fileReader{conn: conn, end: cancel, copy: func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		}}, conn, ctx
	}
	f, conn, ctx := begin()
	to := leaving{most: 100}
	n, err := f.WriteTo(&to)
	if err != nil || n != int64(len(data)) || len(to.got) != 4 || conn.set != 4 || !bytes.Equal(bytes.Join(to.got, nil), data) {
		t.Errorf("%d bytes came in %d pieces with %d deadlines, %v", n, len(to.got), conn.set, err)
	}
	if err := f.Close(); err != nil || ctx.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	f, conn, ctx = begin()
	if err := iotest.TestReader(f, data); err != nil || conn.set == 0 {
		t.Errorf("it is read with %d deadlines, %v", conn.set, err)
	}
	if err := f.Close(); err != nil || ctx.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	f, conn, _ = begin()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(f, first); err != nil {
		t.Fatal(err)
	}
	before, rest := conn.set, leaving{most: 1000}
	if n, err := f.WriteTo(&rest); err != nil || n != int64(len(data)-len(first)) || conn.set-before != len(rest.got) ||
		!bytes.Equal(slices.Concat(first, bytes.Join(rest.got, nil)), data) {
		t.Errorf("after %d bytes were read, %d are written with %d deadlines, %v", len(first), n, conn.set-before, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f, _, _ = begin()
	if n, err := f.WriteTo(&leaving{most: 2}); err == nil || n != 2*filePiece {
		t.Errorf("%d bytes were written to a client that is gone, %v", n, err)
	}
	w := fileWriter{Writer: &leaving{}}
	if _, err := w.Write(data); err == nil || !w.failed {
		t.Errorf("a client that is gone: %v", err)
	}
}
