package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// How long an append may take. A leader whose disk hangs keeps its leadership
// for ever, because its heartbeats go on; so it must end. A follower hurts
// nobody and gets more time.
const (
	appendLimitLeader   = 2 * time.Second
	appendLimitFollower = 30 * time.Second
	watchdogTick        = 100 * time.Millisecond
)

// watchdog passes writes to the store through and notices when one hangs.
type watchdog struct {
	raft.LogStore
	stable   raft.StableStore
	now      func() time.Time
	observed func(time.Duration) // Told how long each append took.

	mu      sync.Mutex
	seq     uint64 // Of the newest write.
	pending int    // Writes that have not returned.
	sawSeq  uint64
	sawAt   time.Time
	hung    time.Duration // How long the write sawSeq has been pending.
}

// StoreLogs appends entries under watch.
func (w *watchdog) StoreLogs(logs []*raft.Log) error {
	start := w.begin()
	defer w.end()
	err := w.LogStore.StoreLogs(logs)
	w.observed(w.now().Sub(start))
	return err
}

// StoreLog appends one entry under watch.
func (w *watchdog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// Set stores a value under watch.
func (w *watchdog) Set(key, value []byte) error {
	w.begin()
	defer w.end()
	return w.stable.Set(key, value)
}

// Get reads a value.
func (w *watchdog) Get(key []byte) ([]byte, error) { return w.stable.Get(key) }

// SetUint64 stores a number under watch.
func (w *watchdog) SetUint64(key []byte, v uint64) error {
	w.begin()
	defer w.end()
	return w.stable.SetUint64(key, v)
}

// GetUint64 reads a number.
func (w *watchdog) GetUint64(key []byte) (uint64, error) { return w.stable.GetUint64(key) }

func (w *watchdog) begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	w.pending++
	return w.now()
}

func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending--
	w.seq++ // What is pending beside it starts anew.
}

// look is called on every tick and returns an error when a write has hung for
// longer than limit. Time in which the ticks themselves stood still (the
// process was stopped, the machine asleep) counts as one tick.
func (w *watchdog) look(now time.Time, limit time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := now.Sub(w.sawAt)
	w.sawAt = now
	if w.pending == 0 || w.seq != w.sawSeq {
		w.sawSeq, w.hung = w.seq, 0
		return nil
	}
	if gap > 3*watchdogTick {
		gap = watchdogTick
	}
	w.hung += gap
	if w.hung <= limit {
		return nil
	}
	return fmt.Errorf("a write to the raft log has not returned for %s", w.hung.Round(time.Millisecond))
}
