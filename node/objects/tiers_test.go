package objects_test

import (
	"context"
	"crypto/sha256"
	"sync"
	"testing"

	"berth/compute"
	"berth/fsm"
	"berth/node/objects"
)

// place keeps blobs in memory, or answers nothing.
type place struct {
	mu sync.Mutex

	blobs map[compute.Hash][]byte
	down  bool
}

func newPlace(texts ...string) *place {
	p := &place{blobs: make(map[compute.Hash][]byte)}
	for _, text := range texts {
		p.blobs[hashOf(text)] = []byte(text)
	}
	return p
}

func hashOf(text string) compute.Hash { return sha256.Sum256([]byte(text)) }

func (p *place) Put(_ context.Context, data []byte) (compute.Hash, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return compute.Hash{}, compute.Errorf(compute.CodeUnavailable, "down")
	}
	p.blobs[hashOf(string(data))] = data
	return hashOf(string(data)), nil
}

func (p *place) Lend(ctx context.Context, data []byte) (compute.Hash, bool, error) {
	hash, err := p.Put(ctx, data)
	return hash, false, err
}

func (p *place) Get(_ context.Context, h compute.Hash) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.blobs[h]
	switch {
	case p.down:
		return nil, compute.Errorf(compute.CodeUnavailable, "down")
	case !ok:
		return nil, compute.Errorf(compute.CodeNotFound, "none")
	}
	return data, nil
}

func (p *place) Peek(h compute.Hash, buf []byte) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.blobs[h]
	return buf[:copy(buf, data)], ok && !p.down
}

// TestTiers writes to the first place and reads from all. That nobody has a blob it says
// only when each place does.
func TestTiers(t *testing.T) {
	first, second := newPlace("a"), newPlace("b")
	tiers := objects.Tiers{first, second}
	if h, err := tiers.Put(t.Context(), []byte("c")); err != nil || first.blobs[h] == nil || second.blobs[h] != nil {
		t.Errorf("put in the wrong place, %v", err)
	}
	for text, want := range map[string]compute.Code{"a": "", "b": "", "c": "", "d": compute.CodeNotFound} {
		if got, ok := tiers.Peek(hashOf(text), make([]byte, 1)); ok != (want == "") || ok && string(got) != text {
			t.Errorf("%s is %q on this disk", text, got)
		}
		if got, err := tiers.Get(t.Context(), hashOf(text)); want == "" && string(got) != text || want != "" && compute.CodeOf(err) != want {
			t.Errorf("%s is %q, %v", text, got, err)
		}
	}
	first.down = true
	if got, err := tiers.Get(t.Context(), hashOf("b")); err != nil || string(got) != "b" {
		t.Errorf("of the second place: %q, %v", got, err)
	}
	if _, err := tiers.Get(t.Context(), hashOf("a")); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("of a place that is down: %v", err)
	}
}

// TestMover copies live blobs that are not there yet, reports those it could not copy, and is
// not started twice.
func TestMover(t *testing.T) {
	to, from := newPlace("there"), newPlace("a", "b", "dead")
	m := objects.Mover{
		To: to, From: objects.Tiers{to, from},
		Live: func(_ context.Context, _ *fsm.View, live map[compute.Hash]bool) (int, error) {
			for _, text := range []string{"there", "a", "b", "lost"} {
				live[hashOf(text)] = true
			}
			return 0, nil
		},
		Known: func(context.Context) (map[compute.Hash]bool, error) {
			return map[compute.Hash]bool{hashOf("there"): true}, nil
		},
		Read: func(context.Context) (*fsm.View, error) { return nil, nil },
	}
	if m.State().Started || !m.Begin() || m.Begin() {
		t.Error("it was started twice, or not at all")
	}
	m.Run(t.Context())
	s := m.State()
	if !s.Ended || s.Blobs != 4 || s.Done != 3 || s.Bytes != 2 || s.Failed != 1 || compute.CodeOf(s.Err) != compute.CodeNotFound {
		t.Errorf("it ended as %+v", s)
	}
	if len(to.blobs) != 3 || to.blobs[hashOf("dead")] != nil {
		t.Errorf("there are %d blobs", len(to.blobs))
	}
	from.blobs[hashOf("lost")] = []byte("lost")
	if !m.Begin() {
		t.Fatal("it cannot be started again")
	}
	m.Run(t.Context())
	if s := m.State(); s.Done != 4 || s.Err != nil {
		t.Errorf("again it ended as %+v", s)
	}
}

// TestMoverNeedsTheNewestState holds that nothing counts as moved when the newest state
// cannot be read: an older one may lack objects.
func TestMoverNeedsTheNewestState(t *testing.T) {
	to := newPlace("a")
	noLeader := compute.Errorf(compute.CodeUnavailable, "no leader")
	m := objects.Mover{
		To: to, From: to,
		Live:  func(context.Context, *fsm.View, map[compute.Hash]bool) (int, error) { return 0, nil },
		Known: func(context.Context) (map[compute.Hash]bool, error) { return nil, nil },
		Read:  func(context.Context) (*fsm.View, error) { return nil, noLeader },
	}
	m.Begin()
	m.Run(t.Context())
	if s := m.State(); !s.Ended || compute.CodeOf(s.Err) != compute.CodeUnavailable || !m.Begin() {
		t.Errorf("it ended as %+v, or cannot be started again", s)
	}
}
