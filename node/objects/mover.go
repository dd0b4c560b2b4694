package objects

import (
	"context"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
)

const (
	movesAtOnce = 4 // Blobs in memory, of at most 4 MiB.
	readTime    = 30 * time.Second
)

// Mover copies the blobs that objects need to where new ones are kept, while they are
// read from everywhere. It copies once at a time, and can be started again at any time.
type Mover struct {
	To   Blobs // Where new ones are kept.
	From Blobs // Where all are read from.
	// Live adds the blobs that the objects of a state need.
	Live func(ctx context.Context, view *fsm.View, live map[compute.Hash]bool) (unread int, err error)
	// Known returns the blobs that To has already, as far as it knows without reading
	// them.
	Known func(ctx context.Context) (map[compute.Hash]bool, error)
	// Read returns a view that has everything acknowledged before the call.
	Read func(ctx context.Context) (*fsm.View, error)

	mu sync.Mutex

	running bool
	last    Move
}

// Move is the progress of one run of a Mover.
type Move struct {
	Started, Ended bool
	Blobs, Done    int   // The live blobs, and how many are copied or were there before.
	Bytes          int64 // Copied.
	Failed         int
	Err            error // The first one.
}

// State returns the progress of the newest run.
func (m *Mover) State() Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Begin reports whether Run is to be called: it is not, while it still works.
func (m *Mover) Begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		return false
	}
	m.running, m.last = true, Move{Started: true}
	return true
}

// Run copies the blobs that the objects of the newest state need, after Begin.
func (m *Mover) Run(ctx context.Context) {
	err := m.run(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running, m.last.Ended = false, true
	if m.last.Err == nil {
		m.last.Err = err
	}
}

func (m *Mover) run(ctx context.Context) error {
	view, err := m.read(ctx)
	if err != nil {
		return err // An older state may lack objects.
	}
	known, err := m.Known(ctx)
	if err != nil {
		return err
	}
	live := make(map[compute.Hash]bool)
	if _, err := m.Live(ctx, view, live); err != nil {
		return err
	}
	m.note(func(s *Move) { s.Blobs = len(live) })
	hashes := make(chan compute.Hash)
	var workers sync.WaitGroup
	for range movesAtOnce {
		workers.Go(func() {
			for h := range hashes {
				m.copy(ctx, h)
			}
		})
	}
	for h := range live {
		if known[h] {
			m.note(func(s *Move) { s.Done++ })
			continue
		}
		if ctx.Err() != nil {
			break
		}
		hashes <- h
	}
	close(hashes)
	workers.Wait()
	return ctx.Err()
}

// read reads the state.
func (m *Mover) read(ctx context.Context) (*fsm.View, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return m.Read(ctx)
}

// copy copies a blob.
func (m *Mover) copy(ctx context.Context, h compute.Hash) {
	data, err := m.From.Get(ctx, h)
	if err == nil {
		_, err = m.To.Put(ctx, data)
	}
	m.note(func(s *Move) {
		if err == nil {
			s.Done, s.Bytes = s.Done+1, s.Bytes+int64(len(data))
			return
		}
		s.Failed++
		if s.Err == nil {
			s.Err = err
		}
	})
}

func (m *Mover) note(change func(*Move)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.last)
}
