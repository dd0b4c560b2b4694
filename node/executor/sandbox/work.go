package sandbox

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

const (
	workHeader = 8        // Bytes before a file: the lengths of its path and its text, which follow.
	workBuffer = 64 << 10 // Bytes.
)

// WorkFile is a file of the program, with its path in WorkDir.
type WorkFile struct {
	Path string
	Text string
}

// WriteWork writes the files to w as the first process reads them.
func WriteWork(w io.Writer, files []WorkFile) error {
	buffered := bufio.NewWriterSize(w, workBuffer)
	for _, file := range files {
		// An error stays in the writer, and Flush returns it.
		header := binary.BigEndian.AppendUint32(nil, uint32(len(file.Path)))
		_, _ = buffered.Write(binary.BigEndian.AppendUint32(header, uint32(len(file.Text))))
		_, _ = buffered.WriteString(file.Path)
		_, _ = buffered.WriteString(file.Text)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write work files: %w", err)
	}
	return nil
}

// unpacker writes the program's files to a directory. It makes each directory
// once.
type unpacker struct {
	target string
	dirs   map[string]bool
	buffer []byte // One for all files: this process collects no garbage.
}

// unpackWork writes the files of WriteWork to target and makes the program's user
// their owner.
func unpackWork(from io.Reader, target string) error {
	u := &unpacker{target: target, dirs: map[string]bool{".": true}, buffer: make([]byte, workBuffer)}
	r := bufio.NewReaderSize(from, workBuffer)
	for {
		var header [workHeader]byte
		_, err := io.ReadFull(r, header[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		name := make([]byte, binary.BigEndian.Uint32(header[:]))
		if err == nil {
			_, err = io.ReadFull(r, name)
		}
		if err == nil {
			text := io.LimitReader(r, int64(binary.BigEndian.Uint32(header[workHeader/2:])))
			err = u.unpack(text, string(name))
		}
		if err != nil {
			return fmt.Errorf("unpack files: %w", err)
		}
	}
}

// unpack writes one file.
func (u *unpacker) unpack(text io.Reader, name string) error {
	if err := u.makeDir(path.Dir(name)); err != nil {
		return err
	}
	file, err := os.OpenFile(u.target+"/"+name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	// Without its other methods, the file cannot allocate a buffer of its own.
	if _, err := io.CopyBuffer(struct{ io.Writer }{file}, text, u.buffer); err != nil {
		return err
	}
	return file.Chown(UserID, UserID)
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
	return os.Lchown(u.target+"/"+dir, UserID, UserID)
}
