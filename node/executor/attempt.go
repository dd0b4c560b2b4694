package executor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor/supervise"
)

var (
	errStopped   = errors.New("stopped before it was started")
	errPreempted = errors.New("preempted before it was started")
	errCutOff    = errors.New("the node did not reach the cluster before it was started")
)

// attempt is one live attempt of this node.
type attempt struct {
	key        key
	placeIndex uint64
	seen       time.Time

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
	warned    compute.Instant // The end of its credits that was noted in its output last.
	reached   time.Duration   // Boottime of the contact that last renewed the lease.
	lease     boottime.Lease  // The code may start within it. After the start the supervisor enforces it.
}

// stopAs requests that the attempt stop. A hard stop replaces a graceful one,
// never the other way around.
func (a *attempt) stopAs(stop compute.Stop) {
	a.mu.Lock()
	changed := stop > a.stop
	a.stop = max(a.stop, stop)
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		// If the supervisor has exited, listen notices it.
		_ = conn.Stop(stop)
	}
}

// preempt preempts the attempt for work of a higher priority. Its code gets a
// notice, and is stopped when the notice is over.
func (a *attempt) preempt(notice time.Duration) {
	a.mu.Lock()
	changed := !a.preempted
	a.preempted, a.notice = true, notice
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		_ = conn.Preempt(notice) // As above.
	}
}

// warn notes in the output that the credits of the attempt are about to end, and again when
// they last until another time.
func (a *attempt) warn(x *compute.Execution) {
	a.mu.Lock()
	conn, due := a.conn, !x.CreditsEnd.IsZero() && a.warned != x.CreditsEnd
	if conn != nil {
		a.warned = x.CreditsEnd
	}
	a.mu.Unlock()
	if conn != nil && due {
		// As above.
		_ = conn.Note(fmt.Sprintf("credits end at %s: without more of them it is stopped then",
			x.CreditsEnd.Time().UTC().Format(time.RFC3339)))
	}
}

// contact renews the lease: the leader was last reached at that boottime.
func (a *attempt) contact(at time.Duration) {
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

// mayStart returns an error when the code must not start: a stop or a preemption
// was requested, or the lease ran out at any time since the attempt was accepted.
// In that case the attempt may already be rescheduled elsewhere.
func (a *attempt) mayStart() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stop != compute.StopNone:
		return errStopped
	case a.preempted:
		return errPreempted
	case a.lease.Over(boottime.Now()):
		return errCutOff
	}
	return nil
}

// reachedAt returns the boottime of the contact that the lease counts from.
func (a *attempt) reachedAt() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reached
}

// connect attaches the supervisor's connection and repeats the earlier requests.
func (a *attempt) connect(conn *supervise.Conn) {
	a.mu.Lock()
	a.conn = conn
	stop, preempted, notice := a.stop, a.preempted, a.notice
	a.mu.Unlock()
	if preempted {
		_ = conn.Preempt(notice) // As above.
	}
	if stop != compute.StopNone {
		_ = conn.Stop(stop) // As above.
	}
}

func (a *attempt) disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

func (a *attempt) stopped() compute.Stop {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stop
}

// setGroup records the name of the cgroup of an attempt.
func (a *attempt) setGroup(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = name
}
