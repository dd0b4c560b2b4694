package weights_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/compute"
	"berth/node/inference/weights"
)

const content = "0123456789"

// slow is a source of a model of one file whose first answers send one byte more each, and
// then nothing until they are given up.
type slow struct {
	stalls  int32
	opened  atomic.Int32
	stalled chan struct{} // Gets one for each answer that stalls.
	end     chan struct{} // Answers that are given up end once it is closed.
}

func (s *slow) List(context.Context, weights.Want) (weights.Listing, error) {
	f := weights.File{Name: "m.gguf", Size: int64(len(content)), Version: "v"}
	return weights.Listing{Version: "v", Files: []weights.File{f}}, nil
}

func (s *slow) Open(
	ctx context.Context, _ weights.Want, _ *weights.Listing, _ *weights.File, offset int64,
) (io.ReadCloser, int64, error) {
	if s.opened.Add(1) > s.stalls {
		return io.NopCloser(strings.NewReader(content[offset:])), offset, nil
	}
	from, to := io.Pipe()
	go func() {
		_, _ = to.Write([]byte(content[offset : offset+1]))
		s.stalled <- struct{}{}
		<-ctx.Done()
		<-s.end
		to.CloseWithError(ctx.Err())
	}()
	return from, offset, nil
}

// TestStalledSource fetches from a source that stalls more often than a file is tried: it
// gets on all the same, a byte each time.
func TestStalledSource(t *testing.T) {
	from := &slow{stalls: 8, stalled: make(chan struct{}, 8), end: make(chan struct{})}
	close(from.end)
	s := newStore(t, newHub(t, nil), func(c *weights.Config) {
		c.Sources, c.Stall = []weights.Source{from}, 10*time.Millisecond
	})
	m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(m.Dir, m.File)); string(data) != content {
		t.Errorf("got %q, %v", data, err)
	}
}

// TestSilentListing asks a hub that sends its header and then nothing: it counts as one that
// does not answer.
func TestSilentListing(t *testing.T) {
	mute := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(mute.Close)
	silentHub := &weights.Hub{URL: mute.URL, Client: mute.Client()}
	s := newStore(t, newHub(t, nil), func(c *weights.Config) {
		c.Sources, c.Stall = []weights.Source{silentHub}, 10*time.Millisecond
	})
	_, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
	if compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}

// TestStartAfterOneThatWasGivenUp starts a download while that of a start which was given up
// is ending.
func TestStartAfterOneThatWasGivenUp(t *testing.T) {
	from := &slow{stalls: 1, stalled: make(chan struct{}, 1), end: make(chan struct{})}
	s := newStore(t, newHub(t, nil), func(c *weights.Config) { c.Sources = []weights.Source{from} })
	get := func(ctx context.Context) error {
		_, err := s.Get(ctx, weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
		return err
	}
	ctx, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- get(ctx) }()
	<-from.stalled
	giveUp()
	if err := <-first; err == nil {
		t.Error("a start that was given up has a model")
	}
	go func() { second <- get(t.Context()) }()
	close(from.end)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// TestOthersModelIsNotTaken holds that an organization whose storage is not reached does not
// get the public model of the name, which is in the cache: its own may be another one.
func TestOthersModelIsNotTaken(t *testing.T) {
	missing := compute.Errorf(compute.CodeNotFound, "nothing is stored")
	from := &storage{version: "v", down: missing}
	hub := newHub(t, map[string]string{"model.safetensors": "public"})
	s := newStore(t, hub, func(c *weights.Config) { c.Stored = from })
	get := func() error {
		w := weights.Want{Name: "a/b", Org: compute.OrgID{UUID: compute.UUID{1}}}
		_, err := s.Get(t.Context(), w, []string{"safetensors"}, silent)
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	from.down = compute.Errorf(compute.CodeUnavailable, "no server answers")
	if err := get(); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("while the storage is not reached: %v", err)
	}
	from.down = missing
	hub.down.Store(true)
	if err := get(); err != nil {
		t.Errorf("while the hub is not reached: %v", err)
	}
}

// TestEvictParts removes the parts of abandoned downloads.
func TestEvictParts(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left", "files")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "m.gguf.part"), make([]byte, 600<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, map[string]string{"1.gguf": strings.Repeat("1", 300<<10), "2.gguf": strings.Repeat("2", 300<<10)})
	s := newStore(t, h, func(c *weights.Config) { c.Dir, c.KeepMiB = dir, 1 })
	for i, name := range []string{"a/b:1", "a/b:2"} {
		if _, err := s.Get(t.Context(), weights.Want{Name: name}, []string{"gguf"}, silent); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); os.IsNotExist(err) != (i == 1) {
			t.Errorf("after %s: %v", name, err)
		}
	}
}
