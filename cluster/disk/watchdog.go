package disk

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
	AppendLimitLeader   = 2 * time.Second
	AppendLimitFollower = 30 * time.Second
	WatchTick           = 100 * time.Millisecond // How often to call Watchdog.Look.
)

// Watchdog passes writes to the store through and notices when one hangs.
type Watchdog struct {
	raft.LogStore
	Stable   raft.StableStore
	Now      func() time.Time
	Observed func(time.Duration) // Told how long each append took.

	mu      sync.Mutex
	seq     uint64 // Of the newest write.
	pending int    // Writes that have not returned.
	sawSeq  uint64
	sawAt   time.Time
	hung    time.Duration // How long the write sawSeq has been pending.
}

// StoreLogs appends entries under watch.
func (w *Watchdog) StoreLogs(logs []*raft.Log) error {
	start := w.begin()
	defer w.end()
	err := w.LogStore.StoreLogs(logs)
	w.Observed(w.Now().Sub(start))
	return err
}

// StoreLog appends one entry under watch.
func (w *Watchdog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// Set stores a value under watch.
func (w *Watchdog) Set(key, value []byte) error {
	w.begin()
	defer w.end()
	return w.Stable.Set(key, value)
}

// Get reads a value.
func (w *Watchdog) Get(key []byte) ([]byte, error) { return w.Stable.Get(key) }

// SetUint64 stores a number under watch.
func (w *Watchdog) SetUint64(key []byte, v uint64) error {
	w.begin()
	defer w.end()
	return w.Stable.SetUint64(key, v)
}

// GetUint64 reads a number.
func (w *Watchdog) GetUint64(key []byte) (uint64, error) { return w.Stable.GetUint64(key) }

func (w *Watchdog) begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	w.pending++
	return w.Now()
}

func (w *Watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending--
	w.seq++ // What is pending beside it starts anew.
}

// Look is called on every tick and returns an error when a write has hung for
// longer than limit. Time in which the ticks themselves stood still (the
// process was stopped, the machine asleep) counts as one tick.
func (w *Watchdog) Look(now time.Time, limit time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := now.Sub(w.sawAt)
	w.sawAt = now
	if w.pending == 0 || w.seq != w.sawSeq {
		w.sawSeq, w.hung = w.seq, 0
		return nil
	}
	if gap > 3*WatchTick {
		gap = WatchTick
	}
	w.hung += gap
	if w.hung <= limit {
		return nil
	}
	return fmt.Errorf("a write to the raft log has not returned for %s", w.hung.Round(time.Millisecond))
}
