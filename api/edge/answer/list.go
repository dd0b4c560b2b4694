package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/klauspost/compress/gzip"

	"berth/api/edge/connection"
)

// listPiece is how many bytes of a list are encoded at a time. A list that is
// shorter is sent whole.
const listPiece = 64 << 10

// listTime is how long a client may take for a long list, which keeps a view of the
// state. Until then it counts as a stream.
const listTime = 5 * time.Minute

// scanTimeout bounds the rows of one piece, as handlers are bounded.
const scanTimeout = 10 * time.Second

// List is an answer of many rows. They are encoded as the client takes them, so
// that a long list takes no more memory of the node than a short one.
type List struct {
	Before, After string // The JSON around the rows.
	// Rows yields the rows, or an error as the last pair. Its context ends with
	// the answer, which is after the handler has returned.
	Rows func(ctx context.Context) iter.Seq2[any, error]
	// Scan is taken while rows are computed, if not nil.
	Scan func(ctx context.Context) (done func(), err error)
}

// ListIn returns the list that takes the place of the empty array called name in
// around.
func ListIn(around any, name string, rows func(ctx context.Context) iter.Seq2[any, error]) (List, error) {
	data, err := Encode(around)
	if err != nil {
		return List{}, err
	}
	field := []byte(`"` + name + `":[`)
	before, after, ok := bytes.Cut(data, append(field, ']'))
	if !ok {
		return List{}, fmt.Errorf("%T has no empty array %s", around, name)
	}
	return List{Before: string(before) + string(field), After: "]" + string(after), Rows: rows}, nil
}

// ListReader encodes the rows of a list as they are read.
type ListReader struct {
	List

	conn   net.Conn
	until  time.Time // See listTime.
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // Ends with the answer.
	next   func() (row any, err error, ok bool)
	stop   func()
	cancel func()

	Release func() // Called by Close, once; nil for nothing.

	piece  bytes.Buffer // Encoded bytes that are not read yet.
	zip    *gzip.Writer // Compresses pieces into packed; nil for none.
	packed bytes.Buffer // Compressed bytes that are not read yet.
	zipped bool         // The end of the compressed list is in packed, or was read.
	some   bool         // A row came.
	ended  bool         // After is in piece, or was read.
	broken error        // The error that ended the rows early.
}

// Open begins the list for a client, within life.
func (l List) Open(life context.Context, conn net.Conn, log *slog.Logger) *ListReader {
	ctx, cancel := context.WithCancel(life)
	out := &ListReader{List: l, conn: conn, log: log, ctx: ctx, cancel: cancel}
	out.until = time.Now().Add(listTime) //nolint:forbidigo // A limit of a connection.
	out.next, out.stop = iter.Pull2(l.Rows(ctx))
	out.piece.WriteString(l.Before)
	return out
}

// Fill encodes rows until there is a piece of them. It returns io.EOF when the
// last one is encoded.
func (l *ListReader) Fill() error {
	if l.Scan != nil {
		ctx, cancel := context.WithTimeout(l.ctx, scanTimeout)
		defer cancel()
		done, err := l.Scan(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	enc := json.NewEncoder(&l.piece)
	enc.SetEscapeHTML(false) // As encode.
	for l.piece.Len() < listPiece {
		row, ok, err := l.row()
		switch {
		case !ok:
			l.piece.WriteString(l.After)
			l.ended = true
			return io.EOF
		case err != nil:
			return err
		case l.some:
			l.piece.WriteByte(',')
		}
		l.some = true
		if err := enc.Encode(row); err != nil {
			return err
		}
		l.piece.Truncate(l.piece.Len() - 1) // The newline.
	}
	return nil
}

// Whole returns the list, once fill has returned io.EOF.
func (l *ListReader) Whole() []byte { return l.piece.Bytes() }

// row returns the next row. A panic becomes an error: the handler, which would
// answer it, has returned.
func (l *ListReader) row() (row any, ok bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			row, ok, err = nil, true, fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	row, err, ok = l.next()
	return row, ok, err
}

// Compress has the list read as gzip. It keeps no memory between pieces.
func (l *ListReader) Compress() { l.zip = newZip(&l.packed) }

// Read implements io.Reader. The client has the usual time to take each piece.
func (l *ListReader) Read(p []byte) (int, error) {
	from := &l.piece
	if l.zip != nil {
		from = &l.packed
	}
	if from.Len() == 0 {
		l.advance()
	}
	if l.broken != nil {
		return 0, l.broken // Half a piece would only hide what is missing.
	}
	return from.Read(p) // io.EOF behind the last piece.
}

// advance makes the next piece, if there is one.
func (l *ListReader) advance() {
	if l.piece.Len() == 0 && l.broken == nil && !l.ended {
		if err := l.Fill(); err != nil && !errors.Is(err, io.EOF) {
			l.broken = err
			l.log.Error("list ended early", "err", err)
		}
		if err := l.extend(time.Now()); err != nil { //nolint:forbidigo // As until.
			l.broken = err
		}
	}
	if l.zip == nil || l.broken != nil || l.zipped {
		return
	}
	if _, l.broken = l.piece.WriteTo(l.zip); l.broken == nil && l.ended {
		l.zipped = true
		l.broken = l.zip.Close()
	}
}

// extend gives the client the usual time for a piece.
func (l *ListReader) extend(now time.Time) error {
	if !now.Before(l.until) {
		return fmt.Errorf("list not taken within %v", listTime)
	}
	return l.conn.SetWriteDeadline(now.Add(connection.WriteTimeout))
}

// Close implements io.Closer.
func (l *ListReader) Close() error {
	l.stop()
	l.cancel()
	if l.Release != nil {
		l.Release()
		l.Release = nil
	}
	return nil
}
