package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
	at     map[compute.Hash]time.Time // Times of those that are not in the trash.
	trash  map[compute.Hash]time.Time
	now    time.Time
	refuse map[string]error // By method.
	gets   int
}

func newMemory() *memory {
	return &memory{
		data: make(map[compute.Hash][]byte), at: make(map[compute.Hash]time.Time), trash: make(map[compute.Hash]time.Time),
		now: time.Unix(1e9, 0), refuse: make(map[string]error),
	}
}

func (s *memory) Put(_ context.Context, name compute.Hash, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse["put"]; err != nil {
		return err
	}
	s.data[name], s.at[name] = data, s.now
	return nil
}

func (s *memory) Get(_ context.Context, name compute.Hash) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	if err := s.refuse["get"]; err != nil {
		return nil, err
	}
	if data, ok := s.data[name]; ok {
		return data, nil
	}
	return nil, compute.Errorf(compute.CodeNotFound, "None.")
}

func (s *memory) All(context.Context) (map[compute.Hash]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at), s.refuse["all"]
}

func (s *memory) Trash(context.Context) (map[compute.Hash]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.trash), s.refuse["trash"]
}

func (s *memory) Discard(_ context.Context, name compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse["discard"]; err != nil {
		return err
	}
	delete(s.at, name)
	s.trash[name] = s.now
	return nil
}

func (s *memory) Restore(_ context.Context, name compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trash, name)
	s.at[name] = s.now
	return nil
}

func (s *memory) Delete(_ context.Context, name compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trash, name)
	if _, ok := s.at[name]; !ok {
		delete(s.data, name)
	}
	return nil
}

// testKey stands for the key of package secrets, which tests it.
type testKey byte

func (k testKey) Name(hash compute.Hash) compute.Hash {
	return sha256.Sum256(append([]byte{byte(k)}, hash[:]...))
}

func (k testKey) Seal(data, context []byte) ([]byte, error) {
	out := append([]byte{byte(k)}, context...)
	for _, b := range data {
		out = append(out, b^0xff)
	}
	return out, nil
}

func (k testKey) Open(sealed, context []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(sealed, append([]byte{byte(k)}, context...))
	if !ok {
		return nil, errors.New("not sealed")
	}
	out := make([]byte, len(text))
	for i, b := range text {
		out[i] = b ^ 0xff
	}
	return out, nil
}

// cluster has blobs, some of which are live.
type cluster struct {
	store    *memory
	blobs    map[compute.Hash][]byte
	live     map[compute.Hash]bool
	registry *prometheus.Registry // That of the newest mirror.

	index uint64
	part  error // Not all live blobs are known.

	mu    sync.Mutex
	reads int
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
	c.registry = prometheus.NewRegistry()
	return mirror.New(mirror.Config{
		To: to, From: from, Key: testKey(key), Blob: c.blob,
		Live: func(context.Context) (map[compute.Hash]bool, uint64, error) {
			c.index++
			return maps.Clone(c.live), c.index, c.part
		},
		Now: func() time.Time { return c.store.now }, Logger: slog.New(slog.DiscardHandler), Registerer: c.registry,
	})
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

// metric returns a gauge of the newest mirror.
func (c *cluster) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestTrash has copies discarded once they are old and nothing refers to their blobs. They
// can be read for a week, and come back when their blobs are referred to again.
func TestTrash(t *testing.T) {
	c := newCluster()
	kept, gone := c.add("kept"), c.add("gone")
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 2)
	delete(c.live, gone)
	delete(c.blobs, gone)
	later := func(d time.Duration) {
		t.Helper()
		c.store.now = c.store.now.Add(d)
		mustCopy(t, m, 0)
	}
	later(time.Hour)
	if len(c.store.trash) != 0 {
		t.Error("a young copy is in the trash")
	}
	later(time.Hour)
	if len(c.store.trash) != 1 || len(c.store.at) != 1 {
		t.Errorf("%d copies are in the trash, and %d are not", len(c.store.trash), len(c.store.at))
	}
	c.live[gone] = true
	later(time.Hour)
	if len(c.store.at) != 2 {
		t.Error("a copy did not come back from the trash")
	}
	delete(c.live, gone)
	later(time.Hour)
	later(time.Hour)
	later(6 * 24 * time.Hour)
	if _, err := m.Get(t.Context(), gone); err != nil {
		t.Errorf("a copy of this week: %v", err)
	}
	later(24 * time.Hour)
	if _, err := m.Get(t.Context(), gone); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a copy that nothing has referred to for a week: %v", err)
	}
	if _, err := m.Get(t.Context(), kept); err != nil {
		t.Errorf("an old copy of a live blob: %v", err)
	}
	clear(c.store.data) // Somebody empties the store.
	clear(c.store.at)
	c.store.now = c.store.now.Add(time.Hour)
	mustCopy(t, m, 1)
}

// TestUnknownReferences copies what is known to be live, and discards nothing.
func TestUnknownReferences(t *testing.T) {
	c := newCluster()
	old := c.add("old")
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 1)
	delete(c.live, old)
	c.add("new")
	c.part = errors.New("a manifest cannot be read")
	c.store.now = c.store.now.Add(2 * time.Hour)
	if n, err := m.Round(t.Context(), time.Hour); n != 1 || !errors.Is(err, c.part) {
		t.Errorf("%d copied, %v", n, err)
	}
	if len(c.store.trash) != 0 || c.metric(t, "berth_mirror_failing") != 1 {
		t.Errorf("%d copies are in the trash", len(c.store.trash))
	}
	c.part = nil
	mustCopy(t, m, 0)
	if c.metric(t, "berth_mirror_failing") != 0 {
		t.Error("it still fails")
	}
}

// TestFailingStores says that a round has failed, and goes on as far as it can.
func TestFailingStores(t *testing.T) {
	for method, copied := range map[string]int{"all": 0, "trash": 0, "discard": 1, "put": 0} {
		t.Run(method, func(t *testing.T) {
			c := newCluster()
			old := c.add("old")
			mustCopy(t, c.open(t, 1, c.store), 1)
			delete(c.live, old)
			c.add("new")
			m := c.open(t, 1, c.store)
			c.store.now = c.store.now.Add(2 * time.Hour)
			c.store.refuse[method] = errors.New("refused")
			n, err := m.Round(t.Context(), time.Hour)
			if n != copied || err == nil || c.metric(t, "berth_mirror_failing") != 1 {
				t.Errorf("%d copied, %v", n, err)
			}
			c.store.now = c.store.now.Add(time.Minute)
			if _, err := m.Round(t.Context(), time.Hour); err == nil || c.metric(t, "berth_mirror_failing") != 1 {
				t.Errorf("the next round: %v", err)
			}
			clear(c.store.refuse)
			mustCopy(t, m, 1-copied)
			if len(c.store.trash) != 1 || c.metric(t, "berth_mirror_failing") != 0 {
				t.Errorf("%d copies are in the trash", len(c.store.trash))
			}
		})
	}
}

// TestMoveBetweenStores copies to a new store also what only the mirror in the old one has.
func TestMoveBetweenStores(t *testing.T) {
	c, old := newCluster(), newMemory()
	lost := c.add("on no server")
	mustCopy(t, c.open(t, 1, old), 1)
	delete(c.blobs, lost)
	m := c.open(t, 1, c.store, old)
	mustCopy(t, m, 1)
	clear(old.data)
	if got, err := m.Get(t.Context(), lost); err != nil || string(got) != "on no server" {
		t.Errorf("from the new store: %q, %v", got, err)
	}
}

// TestSilentStore asks a store that has failed again only after a while.
func TestSilentStore(t *testing.T) {
	c := newCluster()
	one := c.add("the one")
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 1)
	c.store.refuse["get"] = compute.Errorf(compute.CodeUnavailable, "It does not answer.")
	for range 3 {
		if _, err := m.Get(t.Context(), one); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
	if c.store.gets != 1 {
		t.Errorf("it was asked %d times", c.store.gets)
	}
	clear(c.store.refuse)
	c.store.now = c.store.now.Add(time.Minute)
	if _, err := m.Get(t.Context(), one); err != nil {
		t.Error(err)
	}
}

// TestDamagedCopies has copies refused that were changed, exchanged or made with another key.
func TestDamagedCopies(t *testing.T) {
	for name, change := range map[string]func(c *cluster, names []compute.Hash){
		"a flipped bit": func(c *cluster, names []compute.Hash) { c.store.data[names[0]][20] ^= 1 },
		"an empty copy": func(c *cluster, names []compute.Hash) { c.store.data[names[0]] = nil },
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
	old.refuse["get"] = compute.Errorf(compute.CodeUnavailable, "The store does not answer.")
	if _, err := c.open(t, 1, c.store, old).Get(t.Context(), one); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a store that may have it does not answer: %v", err)
	}
}

// TestLostBlobs copies all others beside blobs that no server has, and ends when the store
// refuses all.
func TestLostBlobs(t *testing.T) {
	c := newCluster()
	for i := range 100 {
		lost := c.add(fmt.Sprint("lost ", i))
		delete(c.blobs, lost)
		c.add(fmt.Sprint("there ", i))
	}
	m := c.open(t, 1, c.store)
	mustCopy(t, m, 100)
	if n := c.metric(t, "berth_mirror_missing"); n != 100 {
		t.Errorf("%v are missing", n)
	}
	c.reads = 0
	mustCopy(t, m, 0)
	if c.reads != 0 {
		t.Errorf("%d lost blobs were asked for again at once", c.reads)
	}
	for i := range 100 {
		c.add(fmt.Sprint("new ", i))
	}
	c.store.refuse["put"] = compute.Errorf(compute.CodeNotFound, "There is no such bucket.")
	if n, err := m.Round(t.Context(), time.Hour); n != 0 || err == nil || c.reads > 20 {
		t.Errorf("a store that refuses all: %d copied, %d tries, %v", n, c.reads, err)
	}
	clear(c.store.refuse)
	mustCopy(t, m, 100)
}
