package answer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"berth/api/edge/connection"
	"berth/compute"
)

// OctetStream is the media type of a file that is nothing else.
const OctetStream = "application/octet-stream"

// Download is an answer too large to hold in memory. The file format itself
// reveals truncation, because the status is already sent.
type Download func(w io.Writer) error

// File is an answer that is a file of known size, sent as it is read.
type File struct {
	Name string // A path; its last part is what a browser saves.
	Size int64

	Type    string // Its media type; "" for bytes. It is never shown as a page of this origin.
	Sandbox bool   // Somebody else may have made it: no browser executes anything of it.
	// Copy writes length bytes from an offset on. Its context ends with the
	// answer, which is after the handler has returned.
	Copy func(ctx context.Context, w io.Writer, from, length int64) error
}

// Open returns length bytes of the file from an offset on, as the body of an answer. It calls
// end, which ends the context, when it is closed.
func (f *File) Open(
	within context.Context, conn net.Conn, log *slog.Logger, from, length int64, end func(),
) io.ReadCloser {
	return &fileReader{conn: conn, end: end, copy: func(w io.Writer) error {
		to := &fileWriter{Writer: w}
		err := f.Copy(within, to, from, length)
		if err != nil && !to.failed && within.Err() == nil {
			log.Warn("file ended early", "err", err)
		}
		return err
	}}
}

// fileReader is a file as the body of an answer. Servers have it written, chunk by chunk
// and without a copy in between; others read it. The client has the usual time for each
// piece. Its methods are for one goroutine.
type fileReader struct {
	conn net.Conn
	copy func(w io.Writer) error
	end  func()         // Ends copy.
	pipe *io.PipeReader // Read reads it; nil before the first call.
}

// filePiece is how much of a file is written at once.
const filePiece = 64 << 10

// WriteTo implements io.WriterTo. After a Read it writes what that has left.
func (f *fileReader) WriteTo(w io.Writer) (n int64, err error) {
	pieces := writerFunc(func(p []byte) (wrote int, err error) {
		for wrote < len(p) && err == nil {
			if err = f.conn.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)); err != nil {
				break
			}
			var more int
			more, err = w.Write(p[wrote:min(wrote+filePiece, len(p))])
			wrote, n = wrote+more, n+int64(more)
		}
		return wrote, err
	})
	if f.pipe != nil {
		_, err = io.Copy(pieces, f.pipe)
	} else {
		err = f.copy(pieces)
	}
	return n, err
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// fileWriter knows whether writing failed: the client is gone then, which is no failure
// of the file.
type fileWriter struct {
	io.Writer

	failed bool
}

// Write implements io.Writer.
func (f *fileWriter) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.failed = f.failed || err != nil
	return n, err
}

// Read implements io.Reader.
func (f *fileReader) Read(p []byte) (int, error) {
	if f.pipe == nil {
		read, write := io.Pipe()
		f.pipe = read
		go func() { write.CloseWithError(f.copy(write)) }() // Nil is io.EOF.
	}
	n, err := f.pipe.Read(p)
	if n > 0 {
		if err := f.conn.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Close implements io.Closer.
func (f *fileReader) Close() error {
	f.end()
	if f.pipe != nil {
		return f.pipe.Close()
	}
	return nil
}

// Range returns the part of a file of a size that the header Range asks for. A
// header with several ranges, or in another unit, asks for the whole file.
func Range(header string, size int64) (from, length int64, part bool, err error) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, pair := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !pair || strings.Contains(spec, ",") {
		return 0, size, false, nil
	}
	outside := compute.Errorf(compute.CodeInvalid, "The file has %d bytes: the range asked for is not in it.", size).
		Named("range_not_satisfiable")
	if first == "" { // The last bytes.
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			return 0, size, false, nil //nolint:nilerr // Not a range.
		}
		if n <= 0 || size == 0 {
			return 0, 0, false, outside
		}
		n = min(n, size)
		return size - n, n, true, nil
	}
	from, err = strconv.ParseInt(first, 10, 64)
	if err != nil || from < 0 {
		return 0, size, false, nil //nolint:nilerr // Not a range.
	}
	to := size - 1
	if last != "" {
		if to, err = strconv.ParseInt(last, 10, 64); err != nil || to < from {
			return 0, size, false, nil //nolint:nilerr // Not a range.
		}
		to = min(to, size-1)
	}
	if from >= size {
		return 0, 0, false, outside
	}
	return from, to - from + 1, true, nil
}
