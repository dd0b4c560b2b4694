package outputs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/node/executor/outputs"
	"berth/node/executor/sandbox"
)

// collect collects the outputs in a work directory and returns what is kept.
func collect(t *testing.T, work string, limits outputs.Limits) (outputs.Summary, map[string]string) {
	t.Helper()
	dir, err := os.Open(work)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	name := filepath.Join(t.TempDir(), "stream")
	summary, err := outputs.Collect(dir, name, limits)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{}
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return summary, kept
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for r := sandbox.NewWorkReader(file); ; {
		entry, content, err := r.Next()
		if errors.Is(err, io.EOF) {
			return summary, kept
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil || int64(len(text)) != entry.Size {
			t.Fatalf("%s has %d bytes of %d, %v", entry.Path, len(text), entry.Size, err)
		}
		kept[entry.Path] = string(text)
	}
}

// newWork returns a work directory with files below outputs.
func newWork(t *testing.T, files map[string]string) string {
	t.Helper()
	work := t.TempDir()
	for name, text := range files {
		file := filepath.Join(work, outputs.Dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return work
}

// TestNothingOfTheHost checks that no link, in whatever place, leads the collection
// out of the directory.
func TestNothingOfTheHost(t *testing.T) {
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, lay := range map[string]func(work string) error{
		"a file":            func(w string) error { return os.Symlink(host+"/secret", w+"/outputs/x") },
		"a directory":       func(w string) error { return os.Symlink(host, w+"/outputs/x") },
		"relative":          func(w string) error { return os.Symlink("../../"+filepath.Base(host), w+"/outputs/x") },
		"inside":            func(w string) error { return os.Symlink("kept", w+"/outputs/x") },
		"of a process":      func(w string) error { return os.Symlink("/proc/self/root"+host+"/secret", w+"/outputs/x") },
		"outputs is a link": func(w string) error { return errors.Join(os.RemoveAll(w+"/outputs"), os.Symlink(host, w+"/outputs")) },
		"outputs is a file": func(w string) error {
			return errors.Join(os.RemoveAll(w+"/outputs"), os.WriteFile(w+"/outputs", []byte("secret"), 0o600))
		},
		"a pipe":   func(w string) error { return syscall.Mkfifo(w+"/outputs/x", 0o600) },
		"a socket": func(w string) error { return syscall.Mknod(w+"/outputs/x", syscall.S_IFSOCK|0o600, 0) },
	} {
		work := newWork(t, map[string]string{"kept": "kept"})
		if err := lay(work); err != nil {
			t.Fatal(name, err)
		}
		summary, kept := collect(t, work, outputs.DefaultLimits())
		for at, text := range kept {
			if at != "kept" || text != "kept" {
				t.Errorf("%s: %s is kept with %q", name, at, text)
			}
		}
		if summary.Left != 1 || !summary.Complete || !strings.HasPrefix(summary.Warning(), `not in the outputs: "`) {
			t.Errorf("%s: %+v", name, summary)
		}
	}
}

// TestLimits checks that each limit ends the collection, or leaves out what is over
// it, and that this is said.
func TestLimits(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("d%d/f%02d", i%2, i)] = strings.Repeat("x", 100)
	}
	files["a/b/c/d/e"] = "deep"
	work := newWork(t, files)
	for _, tt := range []struct {
		name   string
		change func(*outputs.Limits)
		most   int
		want   string
	}{
		{"none", func(*outputs.Limits) {}, 21, ""},
		{"files", func(l *outputs.Limits) { l.Files = 5 }, 5, "over 5 files"},
		{"bytes", func(l *outputs.Limits) { l.Bytes = 350 }, 4, "is over the limit of 350 bytes for all files"},
		{"names", func(l *outputs.Limits) { l.Visited = 10 }, 10, "over 10 names"},
		{"depth", func(l *outputs.Limits) { l.Depth = 3 }, 20, "is deeper than 3 directories"},
		{"time", func(l *outputs.Limits) { l.Time = -time.Second }, 0, "the collection took over"},
	} {
		limits := outputs.DefaultLimits()
		tt.change(&limits)
		summary, kept := collect(t, work, limits)
		if len(kept) > tt.most || tt.want == "" && len(kept) != tt.most || summary.Files != len(kept) ||
			!strings.Contains(summary.Warning(), tt.want) || tt.want == "" && summary.Warning() != "" {
			t.Errorf("%s: %d files are kept, %+v, %q", tt.name, len(kept), summary, summary.Warning())
		}
	}
	if s := outputs.ReadSummary(filepath.Join(work, "none")); !strings.Contains(s.Warning(), "cut short") {
		t.Errorf("without a summary the warning is %q", s.Warning())
	}
}

// TestFullDisk checks that the files before the one that does not fit are kept.
func TestFullDisk(t *testing.T) {
	small := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	work := newWork(t, map[string]string{"a": strings.Repeat("x", 20<<10), "b": strings.Repeat("x", 20<<10), "c": strings.Repeat("x", 40<<10)})
	dir, err := os.Open(work)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	name := filepath.Join(small, "stream")
	summary, err := outputs.Collect(dir, name, outputs.DefaultLimits())
	if err != nil || summary.Files == 0 || summary.Files == 3 || !strings.Contains(summary.Warning(), "no space left") {
		t.Errorf("%+v, %v", summary, err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var whole []string
	for r := sandbox.NewWorkReader(file); ; {
		entry, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, entry.Path)
	}
	if len(whole) != summary.Files || slices.Contains(whole, "") {
		t.Errorf("the stream has %v, the summary says %d", whole, summary.Files)
	}
}
