package sandbox

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

const (
	workHeader   = 1 + 2 + 4 + 8 // Bytes before an entry: kind, mode, lengths of its path and its content, which follow.
	workBuffer   = 64 << 10      // Bytes.
	maxEntryPath = 4 << 10       // Bytes; a longer path is damage.
)

// WorkKind is the kind of an entry of a work stream.
type WorkKind byte

// The kinds of entries.
const (
	WorkRegular WorkKind = 'f'
	WorkDirKind WorkKind = 'd'
	WorkLink    WorkKind = 'l'
)

// WorkFile is a file of the program, with its path in WorkDir.
type WorkFile struct {
	Path string
	Text string
}

// WorkEntry is the head of an entry of a work stream: a file, a directory or a
// symbolic link, whose content is its target.
type WorkEntry struct {
	Kind WorkKind
	Mode fs.FileMode // Permissions.
	Path string
	Size int64 // Bytes of the content.
}

// header returns the entry as it is before its content.
func (e *WorkEntry) header() []byte {
	b := make([]byte, 0, workHeader+len(e.Path))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint16(b, uint16(e.Mode.Perm()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Path)))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Size))
	return append(b, e.Path...)
}

// WorkWriter writes a work stream.
type WorkWriter struct{ *bufio.Writer }

// NewWorkWriter returns a writer of a work stream to w. Flush ends the stream.
func NewWorkWriter(w io.Writer) *WorkWriter { return &WorkWriter{bufio.NewWriterSize(w, workBuffer)} }

// Entry begins an entry. The caller writes as many bytes as its size.
func (w *WorkWriter) Entry(e WorkEntry) error {
	_, err := w.Write(e.header())
	return err
}

// Text writes a whole entry.
func (w *WorkWriter) Text(kind WorkKind, mode fs.FileMode, name, text string) error {
	err := w.Entry(WorkEntry{Kind: kind, Mode: mode, Path: name, Size: int64(len(text))})
	if err == nil {
		_, err = w.WriteString(text)
	}
	return err
}

// WriteWork writes the files to w as the first process reads them.
func WriteWork(w io.Writer, files []WorkFile) error {
	out := NewWorkWriter(w)
	for _, file := range files {
		// An error stays in the writer, and Flush returns it.
		_ = out.Text(WorkRegular, 0o644, file.Path, file.Text)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write work files: %w", err)
	}
	return nil
}

// WorkReader reads a work stream.
type WorkReader struct {
	r    *bufio.Reader
	left io.LimitedReader // The content of the current entry.
	at   int64            // Where it begins in the stream.
	size int64            // Its bytes.
}

// Offset returns where the content of the current entry begins in the stream.
func (w *WorkReader) Offset() int64 { return w.at }

// NewWorkReader returns a reader of the work stream in r.
func NewWorkReader(r io.Reader) *WorkReader {
	return &WorkReader{r: bufio.NewReaderSize(r, workBuffer)}
}

// Next skips the rest of the current entry and returns the next one and its
// content. The error is io.EOF behind the last, and io.ErrUnexpectedEOF where
// the stream is cut.
func (w *WorkReader) Next() (WorkEntry, io.Reader, error) {
	w.at += w.size
	w.size = 0
	if w.left.N > 0 {
		if _, err := io.Copy(io.Discard, &w.left); err != nil {
			return WorkEntry{}, nil, err
		}
		if w.left.N > 0 {
			return WorkEntry{}, nil, io.ErrUnexpectedEOF
		}
	}
	var header [workHeader]byte
	if _, err := io.ReadFull(w.r, header[:]); err != nil {
		return WorkEntry{}, nil, err
	}
	length := binary.BigEndian.Uint32(header[3:])
	size := binary.BigEndian.Uint64(header[7:])
	if length > maxEntryPath || size > 1<<62 {
		return WorkEntry{}, nil, errors.New("an entry of the work stream is damaged")
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(w.r, name); err != nil {
		return WorkEntry{}, nil, io.ErrUnexpectedEOF
	}
	w.left = io.LimitedReader{R: w.r, N: int64(size)}
	w.at, w.size = w.at+workHeader+int64(length), int64(size)
	return WorkEntry{
		Kind: WorkKind(header[0]), Mode: fs.FileMode(binary.BigEndian.Uint16(header[1:])),
		Path: string(name), Size: int64(size),
	}, &w.left, nil
}

// unpacker writes the program's files to a directory. It makes each directory
// once, and follows no link: a parent that is none of its directories is an
// error.
type unpacker struct {
	target    string
	everybody bool // Every user may read and write the files. Else they are the program's user's.
	dirs      map[string]bool
	buffer    []byte // One for all files: this process collects no garbage.
}

// Unpack writes the entries of a work stream to a directory of the machine in which there
// is nothing else, for every user to read and write.
func Unpack(from io.Reader, target string) error { return unpack(from, target, true) }

// unpackWork writes the entries of a work stream to target and makes the
// program's user their owner.
func unpackWork(from io.Reader, target string) error { return unpack(from, target, false) }

func unpack(from io.Reader, target string, everybody bool) error {
	u := &unpacker{
		target: target, everybody: everybody, dirs: map[string]bool{".": true}, buffer: make([]byte, workBuffer),
	}
	r := NewWorkReader(from)
	for {
		entry, content, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = u.unpack(&entry, content)
		}
		if err != nil {
			return fmt.Errorf("unpack files: %w", err)
		}
	}
}

// unpack writes one entry.
func (u *unpacker) unpack(e *WorkEntry, content io.Reader) error {
	if err := u.makeDir(path.Dir(e.Path)); err != nil {
		return err
	}
	switch e.Kind {
	case WorkDirKind:
		if err := u.makeDir(e.Path); err != nil {
			return err
		}
		return os.Chmod(u.target+"/"+e.Path, u.mode(e.Mode.Perm(), 0o777))
	case WorkLink:
		to, err := io.ReadAll(content)
		if err == nil {
			err = os.Symlink(string(to), u.target+"/"+e.Path)
		}
		if err != nil {
			return err
		}
		return u.own(u.target + "/" + e.Path)
	case WorkRegular:
		return u.writeFile(e, content)
	}
	return fmt.Errorf("an entry of unknown kind %q", e.Kind)
}

// writeFile writes one file.
func (u *unpacker) writeFile(e *WorkEntry, content io.Reader) error {
	file, err := os.OpenFile(u.target+"/"+e.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	// Without its other methods, the file cannot allocate a buffer of its own.
	n, err := io.CopyBuffer(struct{ io.Writer }{file}, content, u.buffer)
	if err == nil && n < e.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = u.own(file.Name())
	}
	if err == nil {
		err = file.Chmod(u.mode(e.Mode.Perm(), 0o666))
	}
	return err
}

// mode returns the permissions of a file, with those that everybody has.
func (u *unpacker) mode(said, all fs.FileMode) fs.FileMode {
	if u.everybody {
		return said | all
	}
	return said
}

// own makes the program's user the owner of a file, unless it is everybody's.
func (u *unpacker) own(name string) error {
	if u.everybody {
		return nil
	}
	return os.Lchown(name, UserID, UserID)
}

// makeDir makes a directory and its parents.
func (u *unpacker) makeDir(dir string) error {
	if u.dirs[dir] {
		return nil
	}
	if err := u.makeDir(path.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(u.target+"/"+dir, 0o755); err != nil {
		return err
	}
	u.dirs[dir] = true
	if u.everybody {
		return os.Chmod(u.target+"/"+dir, 0o777)
	}
	return u.own(u.target + "/" + dir)
}
