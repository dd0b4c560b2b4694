package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/node/mirror"
)

// memory is a Store in memory. Package remote tests a real one.
type memory struct {
	mu     sync.Mutex
	data   map[compute.Hash][]byte
	at     map[compute.Hash]time.Time
	now    time.Time
	refuse error
}

func newMemory() *memory {
	return &memory{data: make(map[compute.Hash][]byte), at: make(map[compute.Hash]time.Time), now: time.Unix(1e9, 0)}
}

func (s *memory) Put(_ context.Context, name compute.Hash, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		s.data[name], s.at[name] = data, s.now
	}
	return s.refuse
}

func (s *memory) Get(_ context.Context, name compute.Hash) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, ok := s.data[name]; ok || s.refuse != nil {
		return data, s.refuse
	}
	return nil, compute.Errorf(compute.CodeNotFound, "None.")
}

func (s *memory) All(context.Context) (map[compute.Hash]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at), s.refuse
}

func (s *memory) Delete(_ context.Context, name compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, name)
	delete(s.at, name)
	return s.refuse
}

// cluster has blobs, some of which are live.
type cluster struct {
	store *memory
	blobs map[compute.Hash][]byte
	live  map[compute.Hash]bool
	reads int
	mu    sync.Mutex
}

func newCluster() *cluster {
	return &cluster{store: newMemory(), blobs: make(map[compute.Hash][]byte), live: make(map[compute.Hash]bool)}
}

// add has a live blob.
func (c *cluster) add(text string) compute.Hash {
	hash := compute.Hash(sha256.Sum256([]byte(text)))
	c.blobs[hash], c.live[hash] = []byte(text), true
	return hash
}

func (c *cluster) blob(_ context.Context, hash compute.Hash) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if data, ok := c.blobs[hash]; ok {
		return data, nil
	}
	return nil, compute.Errorf(compute.CodeNotFound, "There is no such blob.")
}

// open returns a mirror of the cluster with a key of one repeated byte.
func (c *cluster) open(t *testing.T, key byte, to mirror.Store, from ...mirror.Store) *mirror.Mirror {
	t.Helper()
	m, err := mirror.New(mirror.Config{
		To: to, From: from, Key: bytes.Repeat([]byte{key}, mirror.KeyBytes), Blob: c.blob,
		Live: func(context.Context) (map[compute.Hash]bool, error) { return maps.Clone(c.live), nil },
		Now:  func() time.Time { return c.store.now }, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustCopy(t *testing.T, m *mirror.Mirror, want int) {
	t.Helper()
	if n, err := m.Round(t.Context(), time.Hour); n != want || err != nil {
		t.Fatalf("%d copied, %v; want %d", n, err, want)
	}
}

// TestCopies has a mirror copy what is live, once, and give it back.
func TestCopies(t *testing.T) {
	c := newCluster()
	code, archive := c.add("code of an execution"), c.add("an archive")
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 2)
	mustCopy(t, m, 0)
	mustCopy(t, c.open(t, 1, c.store), 0) // Another leader lists the store.
	if c.reads != 2 {
		t.Errorf("%d blobs were read to copy 2", c.reads)
	}
	for _, hash := range []compute.Hash{code, archive} {
		if got, err := m.Get(t.Context(), hash); err != nil || !bytes.Equal(got, c.blobs[hash]) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for name, sealed := range c.store.data {
		if c.live[name] || bytes.Contains(sealed, []byte("execution")) || bytes.Contains(sealed, []byte("archive")) {
			t.Error("the store sees the name of a blob, or what is in it")
		}
	}
	if _, err := m.Get(t.Context(), compute.Hash{1}); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a blob without a copy: %v", err)
	}
}

// TestSweep has copies removed once they are old and nothing refers to their blobs.
func TestSweep(t *testing.T) {
	c := newCluster()
	kept, gone := c.add("kept"), c.add("gone")
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 2)
	delete(c.live, gone)
	delete(c.blobs, gone)
	c.store.now = c.store.now.Add(59 * time.Minute)
	mustCopy(t, m, 0)
	if _, err := m.Get(t.Context(), gone); err != nil {
		t.Errorf("a young copy: %v", err)
	}
	c.store.now = c.store.now.Add(2 * time.Minute)
	mustCopy(t, m, 0)
	if _, err := m.Get(t.Context(), gone); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("an old copy that nothing refers to: %v", err)
	}
	if _, err := m.Get(t.Context(), kept); err != nil {
		t.Errorf("an old copy of a live blob: %v", err)
	}
	for name := range c.store.data { // Somebody removes the other one.
		delete(c.store.data, name)
		delete(c.store.at, name)
	}
	c.store.now = c.store.now.Add(time.Hour)
	mustCopy(t, m, 1)
}

// TestDamagedCopies has copies refused that were changed, exchanged or made with another key.
func TestDamagedCopies(t *testing.T) {
	for name, change := range map[string]func(c *cluster, names []compute.Hash){
		"a flipped bit": func(c *cluster, names []compute.Hash) { c.store.data[names[0]][40] ^= 1 },
		"an empty copy": func(c *cluster, names []compute.Hash) { c.store.data[names[0]] = nil },
		"another version": func(c *cluster, names []compute.Hash) {
			c.store.data[names[0]][0]++
		},
		"the copy of another blob": func(c *cluster, names []compute.Hash) {
			c.store.data[names[0]] = c.store.data[names[1]]
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			one := c.add("the one")
			m := c.open(t, 1, c.store)
			mustCopy(t, m, 1)
			names := slices.Collect(maps.Keys(c.store.data))
			c.add("the other")
			mustCopy(t, m, 1)
			for n := range c.store.data {
				if n != names[0] {
					names = append(names, n)
				}
			}
			change(c, names)
			if got, err := m.Get(t.Context(), one); compute.CodeOf(err) != compute.CodeUnavailable {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	c := newCluster()
	one := c.add("the one")
	mustCopy(t, c.open(t, 1, c.store), 1)
	if _, err := c.open(t, 2, c.store).Get(t.Context(), one); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("with another key: %v", err) // Its name is another one too.
	}
}

// TestTwoStores reads copies that are still in the store that is being left.
func TestTwoStores(t *testing.T) {
	c, old := newCluster(), newMemory()
	one := c.add("the one")
	mustCopy(t, c.open(t, 1, old), 1)
	for name, m := range map[string]*mirror.Mirror{
		"another store": c.open(t, 1, c.store, old), "no store": c.open(t, 1, nil, old),
	} {
		if got, err := m.Get(t.Context(), one); err != nil || string(got) != "the one" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	old.refuse = compute.Errorf(compute.CodeUnavailable, "The store does not answer.")
	if _, err := c.open(t, 1, c.store, old).Get(t.Context(), one); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a store that may have it does not answer: %v", err)
	}
}

// TestFailedCopies has a round go on beside blobs that cannot be copied, and end when the
// store refuses all.
func TestFailedCopies(t *testing.T) {
	c := newCluster()
	lost := c.add("lost")
	delete(c.blobs, lost)
	c.add("there")
	m := c.open(t, 1, c.store)
	if n, err := m.Round(t.Context(), time.Hour); n != 1 || compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("beside a lost blob: %d, %v", n, err)
	}
	for i := range 100 {
		c.add(string(rune('a' + i)))
	}
	c.store.refuse = errors.New("refused")
	c.reads = 0
	if n, err := m.Round(t.Context(), time.Hour); n != 0 || err == nil || c.reads > 20 {
		t.Errorf("a store that refuses all: %d copied, %d tries, %v", n, c.reads, err)
	}
	c.store.refuse = nil
	c.blobs[lost] = []byte("lost")
	mustCopy(t, m, 101)
}
