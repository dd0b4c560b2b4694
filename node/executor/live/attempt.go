package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/supervise"
)

const (
	workPatience = time.Minute // For the work of an attempt of an earlier process.
	workPause    = 100 * time.Millisecond
)

// Errors of Attempt.MayStart.
var (
	ErrStopped   = errors.New("stopped before it was started")
	ErrPreempted = errors.New("preempted before it was started")
	ErrCutOff    = errors.New("the node did not reach the cluster before it was started")
)

// Attempt is one live attempt of this node. Its methods are safe for concurrent use.
type Attempt struct {
	Key        Key
	PlaceIndex uint64    // Index in Raft's log of the entry that placed it.
	Seen       time.Time // When this process saw it first.

	mu sync.Mutex

	group string // Name of its cgroup; "" for that of its key.

	stop      compute.Stop
	preempted bool            // A preemption was requested,
	notice    time.Duration   // with this time until SIGTERM.
	conn      *supervise.Conn // nil while there is no supervisor.
	work      *compute.Work   // After a restart of the node, nil until the state returned it.
	started   compute.Instant // When the code started; 0 before.
	watched   bool            // The meter measures it.
	ready     bool            // Its code is ready, as the supervisor says,
	reporting bool            // which is being reported.
	draining  bool            // Its requests are awaited before it stops.
	warned    compute.Instant // The end of its credits that was noted in its output last,
	told      bool            // and of which the supervisor knows.
	reached   time.Duration   // Boottime of the contact that last renewed the lease.
	lease     boottime.Lease  // The code may start within it. After the start the supervisor enforces it.
}

// NewAttempt returns an attempt. Its code may start within grace of a contact.
func NewAttempt(k Key, placeIndex uint64, seen time.Time, grace time.Duration) *Attempt {
	return &Attempt{Key: k, PlaceIndex: placeIndex, Seen: seen, lease: boottime.Lease{Grace: grace}}
}

// Grace returns how long the attempt may be without contact.
func (a *Attempt) Grace() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease.Grace
}

// StopAs requests that the attempt stop. A hard stop replaces a graceful one,
// never the other way around.
func (a *Attempt) StopAs(stop compute.Stop) {
	a.mu.Lock()
	changed := stop > a.stop
	a.stop = max(a.stop, stop)
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		// If the supervisor has exited, the executor notices it.
		_ = conn.Stop(stop)
	}
}

// Preempt preempts the attempt for work of a higher priority. Its code gets a
// notice, and is stopped when the notice is over.
func (a *Attempt) Preempt(notice time.Duration) {
	a.mu.Lock()
	changed := !a.preempted
	a.preempted, a.notice = true, notice
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		_ = conn.Preempt(notice) // As above.
	}
}

// Warn notes in the output that the credits of the attempt are about to end, and again when
// they last until another time. The supervisor stops the code at that time if the cluster
// cannot say so.
func (a *Attempt) Warn(x *compute.Execution, now time.Time) {
	a.mu.Lock()
	conn, changed := a.conn, a.warned != x.CreditsEnd
	due := changed && !x.CreditsEnd.IsZero()
	tell := changed || !a.told
	if conn != nil {
		a.warned, a.told = x.CreditsEnd, true
	}
	a.mu.Unlock()
	if conn != nil && tell {
		var until time.Duration
		if !x.CreditsEnd.IsZero() {
			until = max(boottime.Now()+x.CreditsEnd.Time().Sub(now), 1)
		}
		_ = conn.Paid(until) // As above.
	}
	if conn != nil && due {
		// As above.
		_ = conn.Note(fmt.Sprintf("credits end at %s: without more of them it is stopped then",
			x.CreditsEnd.Time().UTC().Format(time.RFC3339)))
	}
}

// Contact renews the lease: the leader was last reached at that boottime.
func (a *Attempt) Contact(at time.Duration) {
	a.mu.Lock()
	if a.lease.Renew(at, boottime.Now()) {
		a.reached = at
	}
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Contact(at) // As above.
	}
}

// MayStart returns an error when the code must not start: a stop or a preemption
// was requested, or the lease ran out at any time since the attempt was accepted.
// In that case the attempt may already be rescheduled elsewhere.
func (a *Attempt) MayStart() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stop != compute.StopNone:
		return ErrStopped
	case a.preempted:
		return ErrPreempted
	case a.lease.Over(boottime.Now()):
		return ErrCutOff
	}
	return nil
}

// ReachedAt returns the boottime of the contact that the lease counts from.
func (a *Attempt) ReachedAt() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reached
}

// Connect attaches the supervisor's connection and repeats the earlier requests.
func (a *Attempt) Connect(conn *supervise.Conn) {
	a.mu.Lock()
	a.conn, a.told = conn, false
	stop, preempted, notice := a.stop, a.preempted, a.notice
	a.mu.Unlock()
	if preempted {
		_ = conn.Preempt(notice) // As above.
	}
	if stop != compute.StopNone {
		_ = conn.Stop(stop) // As above.
	}
}

// Disconnect closes the supervisor's connection.
func (a *Attempt) Disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

// Stopped returns the stop that was requested.
func (a *Attempt) Stopped() compute.Stop {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stop
}

// SetGroup records the name of the cgroup of an attempt.
func (a *Attempt) SetGroup(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = name
}

// Note writes a line to the output of the attempt.
func (a *Attempt) Note(text string) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Note(text) // As above.
	}
}

// BeginDrain reports whether nothing awaits the requests of the attempt yet: the caller is to.
func (a *Attempt) BeginDrain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := a.draining
	a.draining = true
	return !begun
}

// IsReady reports whether the code of the attempt is ready, as its supervisor says.
func (a *Attempt) IsReady() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// SetReady records whether the code of the attempt is ready, and reports whether the caller is to
// report that, until ReadyReported: nobody else does.
func (a *Attempt) SetReady(ready bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	busy := a.reporting
	a.ready, a.reporting = ready, true
	return !busy
}

// ReadyReported ends the report of SetReady if it is the last one or the value is still the same.
// Otherwise it returns true and the new value, which is to be reported.
func (a *Attempt) ReadyReported(reported, last bool) (ready, again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reporting = a.ready != reported && !last
	return a.ready, a.reporting
}

// Measure records the attempt's work or the start of its code. Once both are known, it reports
// true, once: the caller is to measure the GPUs of that work from then on.
func (a *Attempt) Measure(
	w *compute.Work, started compute.Instant,
) (work *compute.Work, from compute.Instant, begin bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w != nil {
		a.work = w
	}
	a.started = max(a.started, started)
	begin = !a.watched && a.work != nil && !a.started.IsZero()
	a.watched = a.watched || begin
	return a.work, a.started, begin
}

// AwaitWork returns the work of the attempt. An attempt of an earlier process of the node
// has it once the state was read.
func (a *Attempt) AwaitWork(ctx context.Context) (work *compute.Work, err error) {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	err = loop.Until(ctx, workPause, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		work = a.work
		return work != nil
	})
	return work, err
}
