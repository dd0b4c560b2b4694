package disk

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Limits of the time of a write to the log. A leader with a hanging disk keeps its
// leadership forever, because its heartbeats continue, so its process must end. A
// follower does no harm and gets more time, and so do large writes.
const (
	AppendLimitLeader   = 2 * time.Second
	AppendLimitFollower = 30 * time.Second
	bulkLimit           = time.Minute
	WatchTick           = 100 * time.Millisecond // Interval of calls to Watchdog.Check.
)

// errNoVote refuses to store a vote.
var errNoVote = errors.New("this server may not vote yet")

// errOldTerm refuses to store a term over a newer one. Raft then ends the
// process, and the next start reads the newer term.
var errOldTerm = errors.New("a newer term is on disk")

// errVoted refuses to store a second vote in a term.
var errVoted = errors.New("the vote of this term is on disk, for another server")

// access is a kind of access to the disk.
type access uint8

const (
	accessWrite    access = iota // Appends to the log or stores a value, durably.
	accessRead                   // Reads an entry.
	accessDelete                 // Deletes many entries.
	accessSnapshot               // Writes a piece of a snapshot, possibly only to memory.
	accessSync                   // Makes the pieces written so far durable.
	accessProbe                  // A small write that checks whether the disk hangs.
)

// String names the access for an error.
func (a access) String() string {
	return [...]string{
		"a write to the raft log", "a read of the raft log", "a removal of raft entries",
		"an access to a snapshot", "a sync of a snapshot", "a small write",
	}[a]
}

// limit returns how long the access may take, from the limit of a write.
func (a access) limit(limit time.Duration) time.Duration {
	switch a {
	case accessWrite, accessProbe:
		return limit
	case accessRead:
		return max(limit, AppendLimitFollower)
	case accessDelete, accessSnapshot, accessSync:
	}
	return max(limit, bulkLimit)
}

// reaches reports whether the access ends only after the disk has answered. The
// others may end in memory while the disk hangs.
func (a access) reaches() bool { return a != accessRead && a != accessSnapshot }

// Watchdog wraps the store and detects accesses that hang.
type Watchdog struct {
	raft.LogStore
	Stable   raft.StableStore
	Now      func() time.Time
	Observed func(time.Duration) // Called with the duration of each append.
	// Starved reports that the store waits for free space, which is not a hang;
	// nil for never.
	Starved func() bool
	// MayVote reports whether a vote may be stored; nil for always. Raft grants
	// no vote that it cannot store.
	MayVote func() bool
	// Probe durably writes a few bytes beside the log; nil for none.
	Probe func() error

	mu        sync.Mutex
	seq       uint64 // Number of the newest access.
	pending   map[uint64]*pendingAccess
	checkedAt time.Time
	probing   bool
	idleSeq   uint64        // The seq of the last call of Idle.
	next      chan struct{} // The next access closes it; nil if nobody waits for one.

	termMu   sync.Mutex // Held while a term or a vote is written.
	term     uint64     // The newest term written.
	voteTerm uint64     // The term of the newest vote.
	voted    []byte     // Its candidate; nil until it is written.
}

// pendingAccess is an access that has not returned.
type pendingAccess struct {
	kind access
	seen bool          // Seen by Check, which starts the timing.
	hung time.Duration // How long it has hung, as measured by Check.
}

// StoreLogs appends entries under watch.
func (w *Watchdog) StoreLogs(logs []*raft.Log) error {
	start := w.Now()
	defer w.begin(accessWrite)()
	err := w.LogStore.StoreLogs(logs)
	w.Observed(w.Now().Sub(start))
	return err
}

// StoreLog appends one entry under watch.
func (w *Watchdog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// GetLog reads one entry under watch.
func (w *Watchdog) GetLog(index uint64, l *raft.Log) error {
	defer w.begin(accessRead)()
	return w.LogStore.GetLog(index, l)
}

// DeleteRange removes entries under watch.
func (w *Watchdog) DeleteRange(low, high uint64) error {
	defer w.begin(accessDelete)()
	return w.LogStore.DeleteRange(low, high)
}

// Set stores a value under watch.
func (w *Watchdog) Set(key, value []byte) error {
	defer w.begin(accessWrite)()
	if string(key) != KeyLastVoteCand {
		return w.Stable.Set(key, value)
	}
	w.termMu.Lock()
	defer w.termMu.Unlock()
	if w.voted != nil && !bytes.Equal(w.voted, value) {
		return errVoted
	}
	err := w.Stable.Set(key, value)
	if err == nil {
		w.voted = bytes.Clone(value)
	}
	return err
}

// Get reads a value.
func (w *Watchdog) Get(key []byte) ([]byte, error) { return w.Stable.Get(key) }

// SetUint64 stores a number under watch.
func (w *Watchdog) SetUint64(key []byte, v uint64) error {
	if w.MayVote != nil && string(key) == KeyLastVoteTerm && !w.MayVote() {
		return errNoVote
	}
	defer w.begin(accessWrite)()
	// Raft answers heartbeats on another goroutine than vote requests. It may
	// write the term of a heartbeat after that of a vote, and vote twice in a
	// term that it lost this way.
	w.termMu.Lock()
	defer w.termMu.Unlock()
	if string(key) == KeyCurrentTerm && v < w.term {
		return errOldTerm
	}
	err := w.Stable.SetUint64(key, v)
	switch {
	case err != nil:
	case string(key) == KeyCurrentTerm:
		w.term = v
	case string(key) == KeyLastVoteTerm && v != w.voteTerm:
		w.voteTerm, w.voted = v, nil
	}
	return err
}

// GetUint64 reads a number.
func (w *Watchdog) GetUint64(key []byte) (uint64, error) { return w.Stable.GetUint64(key) }

// TryProbe durably writes a few bytes and returns the error. It returns false,
// without another write, while an earlier one hangs.
func (w *Watchdog) TryProbe() (bool, error) {
	w.mu.Lock()
	if w.probing {
		w.mu.Unlock()
		return false, nil
	}
	w.probing = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.probing = false
	}()
	if w.Probe == nil {
		return true, nil
	}
	defer w.begin(accessProbe)()
	return true, w.Probe()
}

// begin records an access and returns the function that ends it.
func (w *Watchdog) begin(kind access) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = make(map[uint64]*pendingAccess)
	}
	w.seq++
	id := w.seq
	w.pending[id] = &pendingAccess{kind: kind}
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
	return func() { w.end(id) }
}

// end removes an access. One that reached the disk shows that the disk works,
// so the timers of pending accesses restart. An append that waits behind the
// pieces of a snapshot is slow, but does not hang. Any other access may have
// ended in memory and shows nothing.
func (w *Watchdog) end(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moves := w.pending[id].kind.reaches()
	delete(w.pending, id)
	if moves {
		w.restartTimers()
	}
}

// restartTimers restarts the timers of pending accesses. The caller holds mu.
func (w *Watchdog) restartTimers() {
	for _, p := range w.pending {
		p.seen, p.hung = false, 0
	}
}

// Check is called on every tick and returns an error if an access has hung for
// too long; limit is the limit of a write. Time without ticks (the process was
// paused, the machine suspended) counts as one tick.
func (w *Watchdog) Check(now time.Time, limit time.Duration) error {
	starved := w.Starved != nil && w.Starved()
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := now.Sub(w.checkedAt)
	w.checkedAt = now
	if gap > 3*WatchTick {
		gap = WatchTick
	}
	if starved {
		w.restartTimers()
		return nil
	}
	var err error
	for _, p := range w.pending {
		if p.seen {
			p.hung += gap
		}
		p.seen = true
		if p.hung > p.kind.limit(limit) {
			err = fmt.Errorf("%s has not returned for %s", p.kind, p.hung.Round(time.Millisecond))
		}
	}
	return err
}

// Idle returns a channel that the next access closes, nil if one is pending or there was one since the
// last call. Until it is closed, Check has nothing to find.
func (w *Watchdog) Idle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 || w.seq != w.idleSeq {
		w.idleSeq = w.seq
		return nil
	}
	if w.next == nil {
		w.next = make(chan struct{})
	}
	return w.next
}

// Pending returns how long the oldest small write has been pending, as measured
// by Check. Large writes may take long.
func (w *Watchdog) Pending() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for _, p := range w.pending {
		if p.kind == accessWrite || p.kind == accessProbe {
			longest = max(longest, p.hung)
		}
	}
	return longest
}
