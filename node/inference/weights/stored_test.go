package weights_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/compute"
	"berth/node/inference/weights"
)

// storage is the storage of an organization with a model of two files.
type storage struct {
	version string
	changes int   // So many times a file changes before it is opened.
	down    error // The error of all listings.
	lists   int
}

func (s *storage) List(context.Context, weights.Want) (weights.Listing, error) {
	s.lists++
	if s.down != nil {
		return weights.Listing{}, s.down
	}
	l := weights.Listing{Version: s.version, Private: true}
	for _, name := range []string{"config.json", "model.safetensors"} {
		l.Files = append(l.Files, weights.File{Name: name, Size: int64(len(s.version)), Version: s.version})
	}
	return l, nil
}

func (s *storage) Open(
	_ context.Context, _ weights.Want, _ *weights.Listing, f *weights.File, offset int64,
) (io.ReadCloser, int64, error) {
	if f.Name == "model.safetensors" && s.changes > 0 {
		s.changes--
		s.version += "+"
	}
	if f.Version != s.version {
		return nil, 0, compute.Errorf(compute.CodeConflict, "the model has changed")
	}
	return io.NopCloser(strings.NewReader(s.version[offset:])), offset, nil
}

// TestStoredModelChanges changes a model while it is fetched: the fetched files are dropped,
// and it is fetched again as it is then, a few times.
func TestStoredModelChanges(t *testing.T) {
	for _, test := range []struct {
		changes, lists int
		code           compute.Code
	}{{0, 1, ""}, {1, 2, ""}, {2, 3, ""}, {9, 3, compute.CodeConflict}} {
		from := &storage{version: "v", changes: test.changes}
		dir := t.TempDir()
		s := newStore(t, newHub(t, nil), func(c *weights.Config) { c.Dir, c.Stored = dir, from })
		m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors"}, silent)
		if compute.CodeOf(err) != test.code || from.lists != test.lists {
			t.Errorf("%d changes: %v after %d listings, want %q after %d", test.changes, err, from.lists, test.code, test.lists)
		}
		for _, name := range []string{"config.json", "model.safetensors"} {
			if data, _ := os.ReadFile(filepath.Join(m.Dir, name)); err == nil && string(data) != from.version {
				t.Errorf("%d changes: %s is of %q, want %q", test.changes, name, data, from.version)
			}
		}
		want := 1
		if err != nil {
			want = 0
		}
		if entries, _ := os.ReadDir(dir); len(entries) != want {
			t.Errorf("%d changes: the cache has %v", test.changes, entries)
		}
	}
}

// TestStorageIsNotReached holds that no other model of the name is taken while it is not
// known what the organization stores, only what was fetched before.
func TestStorageIsNotReached(t *testing.T) {
	models := t.TempDir()
	if err := os.MkdirAll(filepath.Join(models, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(models, "a", "b", "model.safetensors"), []byte("the operator's"), 0o644); err != nil {
		t.Fatal(err)
	}
	from := &storage{version: "v", down: compute.Errorf(compute.CodeUnavailable, "no server answers")}
	s := newStore(t, newHub(t, nil), func(c *weights.Config) { c.Models, c.Stored = models, from })
	get := func() (string, error) {
		m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors"}, silent)
		if err != nil {
			return "", err
		}
		data, err := os.ReadFile(filepath.Join(m.Dir, "model.safetensors"))
		return string(data), err
	}
	steps := []struct {
		name string
		down error
		want string
		code compute.Code
	}{
		{"no answer", from.down, "", compute.CodeUnavailable},
		{"an answer", nil, "v", ""},
		{"no answer, in the cache", from.down, "v", ""},
		{"no such model", compute.Errorf(compute.CodeNotFound, "nothing is stored"), "the operator's", ""},
	}
	for _, step := range steps {
		from.down = step.down
		if got, err := get(); got != step.want || compute.CodeOf(err) != step.code {
			t.Errorf("%s: %q, %v", step.name, got, err)
		}
	}
}

// TestOtherFormatIsStored takes a model from the next source if its organization stores no
// file of a wanted format, as its size does.
func TestOtherFormatIsStored(t *testing.T) {
	models := t.TempDir()
	name := filepath.Join(models, "a", "b", "m.gguf")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, map[string]string{"hub.gguf": "the hub's model"})
	s := newStore(t, h, func(c *weights.Config) { c.Models, c.Stored = models, &storage{version: "of the organization"} })
	want := func(step string, name weights.Want, text string) {
		t.Helper()
		m, err := s.Get(t.Context(), name, []string{"gguf"}, silent)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		data, err := os.ReadFile(filepath.Join(m.Dir, m.File))
		if err != nil || string(data) != text {
			t.Errorf("%s: %q, %v", step, data, err)
		}
		size, ok := s.Size(t.Context(), name, []string{"gguf"}, weights.Precision{})
		if !ok || size != int64(len(text)) {
			t.Errorf("%s: the size is %d", step, size)
		}
	}
	want("of the hub", weights.Want{Name: "a/b"}, "the hub's model")
	if err := os.WriteFile(name, []byte("the operator's"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("of the operator", weights.Want{Name: "a/b"}, "the operator's")
	for _, none := range []string{"a/b:q2", "a/none"} { // Elsewhere nothing is of the format, or there is no such model.
		_, err := s.Get(t.Context(), weights.Want{Name: none}, []string{"gguf"}, silent)
		if compute.CodeOf(err) != compute.CodeInvalid || !strings.Contains(err.Error(), "format gguf") {
			t.Errorf("%s: %v", none, err)
		}
	}
}
