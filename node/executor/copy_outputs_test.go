package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"berth/node/executor/sandbox"
)

// stored keeps files in memory, and refuses one of them.
type stored struct {
	mu     sync.Mutex
	files  map[string]string
	refuse string
}

func (s *stored) Store(_ context.Context, key string, from io.ReaderAt, size int64) error {
	data, err := io.ReadAll(io.NewSectionReader(from, 0, size))
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == s.refuse {
		return errors.New("QuotaExceeded: too much")
	}
	s.files[key] = string(data)
	return err
}

// TestCopyTo stores the files of a work stream, whole or cut, and says which was refused.
func TestCopyTo(t *testing.T) {
	var stream bytes.Buffer
	w := sandbox.NewWorkWriter(&stream)
	all := map[string]string{}
	for n := range 20 {
		name := fmt.Sprintf("dir/%d", n)
		all["to/"+name] = strings.Repeat(name, n*100)
		if err := w.Text(sandbox.WorkRegular, 0o600, name, all["to/"+name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	without := maps.Clone(all)
	delete(without, "to/dir/7")
	cut := maps.Clone(all)
	delete(cut, "to/dir/19")
	for _, test := range []struct {
		name   string
		refuse string
		bytes  int
		want   map[string]string
		err    string
	}{
		{"whole", "", stream.Len(), all, ""},
		{"one is refused", "to/dir/7", stream.Len(), without, `of 20 files, the first: "to/dir/7": QuotaExceeded: too much`},
		{"cut in the last header", "", stream.Len() - len(all["to/dir/19"]) - 3, cut, ""},
		{"cut in the last file", "", stream.Len() - 1, cut, ""},
	} {
		to := &stored{files: map[string]string{}, refuse: test.refuse}
		err := copyTo(t.Context(), to, "to", io.NewSectionReader(bytes.NewReader(stream.Bytes()), 0, int64(test.bytes)))
		if text := fmt.Sprint(err); test.err == "" && err != nil || !strings.Contains(text, test.err) {
			t.Errorf("%s: error %v", test.name, err)
		}
		for key, text := range to.files {
			if text != test.want[key] {
				t.Errorf("%s: %s has %d bytes", test.name, key, len(text))
			}
		}
		if test.refuse == "" && !maps.Equal(to.files, test.want) {
			t.Errorf("%s: %d files are stored, want %d", test.name, len(to.files), len(test.want))
		}
	}
}

// halved stores the first file while the second one is refused.
type halved struct{ refused chan struct{} }

func (h *halved) Store(ctx context.Context, key string, _ io.ReaderAt, _ int64) error {
	if key == "to/0" {
		<-h.refused
		synctest.Wait() // The refusal is known.
		return ctx.Err()
	}
	defer close(h.refused)
	return errors.New("QuotaExceeded: too much")
}

// TestRefusalEndsNoOthers has storage refuse a file while another one is under way, which is stored.
func TestRefusalEndsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stream bytes.Buffer
		w := sandbox.NewWorkWriter(&stream)
		for n := range 2 {
			if err := w.Text(sandbox.WorkRegular, 0o600, fmt.Sprint(n), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		to := &halved{refused: make(chan struct{})}
		err := copyTo(t.Context(), to, "to", io.NewSectionReader(bytes.NewReader(stream.Bytes()), 0, int64(stream.Len())))
		if text := fmt.Sprint(err); !strings.Contains(text, `1 of 2 files, the first: "to/1": QuotaExceeded`) {
			t.Error(err)
		}
	})
}
