package wheeltest

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wheel is a pure Python package.
type Wheel struct {
	Name    string
	Version string
	Code    string   // Code of its module.
	Needs   []string // Requirements.

	// Size is that of a further file, data.bin, in bytes; 0 for none. It does not
	// compress.
	Size int64
}

// member is a file of a wheel.
type member struct {
	name string
	size int64
	open func() io.Reader
}

func text(name, content string) member {
	return member{name, int64(len(content)), func() io.Reader { return strings.NewReader(content) }}
}

// Write writes the wheel into dir, from which installers can read it.
func (w Wheel) Write(tb testing.TB, dir string) {
	tb.Helper()
	if err := w.write(filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", w.Name, w.Version))); err != nil {
		tb.Fatalf("write wheel: %v", err)
	}
}

func (w Wheel) write(name string) error {
	info := fmt.Sprintf("%s-%s.dist-info", w.Name, w.Version)
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.Name, w.Version)
	for _, need := range w.Needs {
		metadata += "Requires-Dist: " + need + "\n"
	}
	members := []member{
		text(w.Name+"/__init__.py", w.Code),
		text(info+"/METADATA", metadata),
		text(info+"/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
	}
	if w.Size > 0 {
		members = append(members, member{w.Name + "/data.bin", w.Size, func() io.Reader {
			return io.LimitReader(&noise{state: 1}, w.Size)
		}})
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	var record strings.Builder
	for _, m := range members {
		sum := sha256.New()
		if err := add(archive, m.name, io.TeeReader(m.open(), sum)); err != nil {
			return err
		}
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", m.name, base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), m.size)
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", info)
	if err := add(archive, info+"/RECORD", strings.NewReader(record.String())); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return file.Close()
}

// add stores a file in the archive as it is.
func add(archive *zip.Writer, name string, content io.Reader) error {
	w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// noise is bytes that do not repeat soon: xorshift.
type noise struct{ state uint64 }

// Read implements io.Reader.
func (n *noise) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		n.state ^= n.state << 13
		n.state ^= n.state >> 7
		n.state ^= n.state << 17
		for j := i; j < min(i+8, len(p)); j++ {
			p[j] = byte(n.state >> (8 * (j - i)))
		}
	}
	return len(p), nil
}
