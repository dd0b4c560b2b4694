package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/boottime"
	"berth/compute"
	"berth/fault"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	spareTime  = 5 * time.Minute // How long a supervisor waits for an attempt before it ends.
	aheadMark  = "ahead-"        // In the names of cgroups that were made before their attempts were known.
	aheadBinds = 64              // Volumes of a node whose sandboxes are prepared: as many can be mounted later.
)

// waiting is a supervisor that waits for its attempt.
type waiting struct {
	conn *supervise.Conn
	res  *resources // The sandbox that it has prepared has them; nil for none.
}

// close ends the supervisor, and removes what it has prepared.
func (w *waiting) close() {
	w.conn.Close()
	if w.res != nil {
		w.res.close()
	}
}

// spare is at most one supervisor that waits for its attempt, which would start later by
// the start of its program. That of containers also initialises the client of the engine.
type spare struct {
	start func(context.Context) (*waiting, error)

	mu       sync.Mutex
	one      *waiting // Nil for none.
	limit    *time.Timer
	starting bool          // One is being started,
	awaited  chan *waiting // for an attempt that waits for it; nil for none.
	closed   bool
}

// take returns the supervisor that waits, nil if none does.
func (s *spare) take() *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.one
	if s.one = nil; one != nil {
		s.limit.Stop()
	}
	return one
}

// expects reports whether await would return a supervisor now or soon.
func (s *spare) expects() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.one != nil || s.starting && s.awaited == nil
}

// await is take that waits for a supervisor which is being started, unless another caller does.
func (s *spare) await(ctx context.Context) *waiting {
	s.mu.Lock()
	if s.one != nil || !s.starting || s.awaited != nil {
		s.mu.Unlock()
		return s.take()
	}
	put := make(chan *waiting, 1)
	s.awaited = put
	s.mu.Unlock()
	select {
	case one := <-put:
		return one
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited == put {
		s.awaited = nil
	} else if one := <-put; one != nil {
		one.close()
	}
	return nil
}

// begin reports whether the caller is to start a supervisor, and then put it.
func (s *spare) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one != nil || s.starting || s.closed {
		return false
	}
	s.starting = true
	return true
}

// put has a supervisor wait for the next attempt; nil if none could be started.
func (s *spare) put(one *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	awaited := s.awaited
	s.starting, s.awaited = false, nil
	switch {
	case awaited != nil:
		awaited <- one
		return
	case one == nil:
		return
	case s.closed:
		one.close()
		return
	}
	s.one = one
	s.limit = time.AfterFunc(spareTime, func() {
		if s.drop(one) {
			one.close()
		}
	})
}

// drop takes a supervisor away, and reports whether it still waited.
func (s *spare) drop(one *waiting) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := s.one == one
	if waited {
		s.one = nil
	}
	return waited
}

// close ends the supervisor that waits.
func (s *spare) close() {
	if one := s.take(); one != nil {
		one.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// keep has a supervisor wait for the next attempt, if none does.
func (s *spare) keep(ctx context.Context) {
	if !s.begin() {
		return
	}
	one, err := s.start(ctx)
	if err != nil {
		one = nil // The next attempt has the error.
	}
	s.put(one)
}

// spareFor returns the place of supervisors that attempts of an execution need.
func (e *Executor) spareFor(x *compute.Execution) *spare {
	if x.Container != nil {
		return &e.containerSpare
	}
	return &e.sandboxSpare
}

// prepares reports whether the sandboxes of an execution are prepared before their attempts are
// known: it has the network and the scratch space of most.
func (e *Executor) prepares(x *compute.Execution) bool {
	return x.Container == nil && (x.Network == compute.NetworkEgress || e.pool.table == nil) &&
		x.ScratchMiB == 0 && !x.ScratchMemory && len(e.cfg.Mounts) <= aheadBinds
}

// keepSupervisor has a supervisor wait for the next attempt, if none does.
func (e *Executor) keepSupervisor(ctx context.Context, x *compute.Execution) {
	if e.prepares(x) {
		e.aheadSpare.keep(ctx)
	} else {
		e.spareFor(x).keep(ctx)
	}
}

// takeAhead returns the resources of a sandbox that is prepared, nil if none is or the execution
// needs another one.
func (e *Executor) takeAhead(ctx context.Context, x *compute.Execution) *resources {
	if !e.prepares(x) {
		return nil
	}
	one := e.aheadSpare.await(ctx)
	if one == nil {
		return nil
	}
	one.res.notes = e.pool.notes(x.Network)
	return one.res
}

// prepareAhead starts a supervisor that prepares a sandbox for its attempt, and waits until it has.
func (e *Executor) prepareAhead(ctx context.Context) (*waiting, error) {
	res, err := e.pool.take(compute.NetworkEgress)
	if err != nil {
		return nil, err
	}
	if err := e.prepareWith(ctx, res); err != nil {
		res.close()
		return nil, err
	}
	return &waiting{conn: res.ahead, res: res}, nil
}

// prepareWith has a sandbox prepared with some resources, and adds its own to them.
func (e *Executor) prepareWith(ctx context.Context, res *resources) (err error) {
	if e.disks != nil {
		if res.disk, err = e.disks.Take(ctx, 0); err != nil {
			return err
		}
	}
	// No two of a node are made at once.
	res.group, res.cgroups = fmt.Sprintf("%s%s%d", e.groupPrefix(), aheadMark, boottime.Now()), e.cgroups
	data, err := json.Marshal(&supervise.Spec{
		Group: res.group, Pids: maxPids, JoinNetwork: res.network != nil,
		Sandbox: sandbox.Spec{
			UIDBase: res.slot.UID(), Hostname: hostname, OwnNetwork: res.network == nil,
			Binds: e.baseBinds, ScratchMiB: 1, ScratchDisk: res.disk != nil,
		},
	})
	if err != nil {
		return fmt.Errorf("prepare sandbox: %w", err)
	}
	if res.ahead, err = e.startSupervisor(supervise.Command, data, res); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, res.ahead.Close)()
	return res.ahead.Prepared()
}

// waiter returns what starts a supervisor that prepares nothing. The command is the argument by
// which the program is a supervisor of its kind.
func (e *Executor) waiter(command string) func(context.Context) (*waiting, error) {
	return func(context.Context) (*waiting, error) {
		conn, err := e.startSupervisor(command, nil, nil)
		if err != nil {
			return nil, err
		}
		return &waiting{conn: conn}, nil
	}
}

// startSupervisor starts a supervisor without an attempt. It prepares the sandbox that ahead asks
// for, with its resources, unless that is empty.
func (e *Executor) startSupervisor(command string, ahead []byte, res *resources) (*supervise.Conn, error) {
	conn, theirs, err := supervise.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := e.spawn(command, theirs, ahead, res); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return conn, nil
}

func (e *Executor) spawn(command string, conn *os.File, ahead []byte, res *resources) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	args := []string{command, supervise.Waiting(e.attemptsDir())}
	if res == nil {
		return e.startProcess(supervise.Placeholders(null, conn, null, nil), args...)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil { // The reader waits in no poller.
		return err
	}
	r, w := os.NewFile(uintptr(ends[0]), "ahead"), os.NewFile(uintptr(ends[1]), "ahead")
	err = e.startProcess(supervise.Placeholders(null, conn, r, res.files(null)), args...)
	r.Close()
	if err == nil {
		_, err = w.Write(ahead)
	}
	return errors.Join(err, w.Close())
}

// hand gives the attempt in dir to the supervisor that has prepared its sandbox, or else to another
// one that waits. A new one takes the place of one that has ended meanwhile.
func (e *Executor) hand(ctx context.Context, s *spare, dir string, res *resources) (*supervise.Conn, error) {
	fault.Point("executor.spawn.before")
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer null.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, supervise.ErrorFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer stderr.Close()
	conn, err := e.handFirst(ctx, s, func(conn *supervise.Conn) error {
		return conn.Hand(dir, stderr, res.files(null))
	}, res)
	if err != nil {
		return nil, err
	}
	res.ahead = nil
	fault.Point("executor.spawn.after")
	return conn, nil
}

// handFirst hands over to the first supervisor that takes it.
func (e *Executor) handFirst(
	ctx context.Context, s *spare, hand func(*supervise.Conn) error, res *resources,
) (*supervise.Conn, error) {
	conn := res.ahead
	if conn == nil {
		if one := s.take(); one != nil {
			conn = one.conn
		}
	}
	if conn != nil {
		if hand(conn) == nil {
			return conn, nil
		}
		conn.Close()
	}
	if err := e.renewDisk(ctx, res); err != nil {
		return nil, err
	}
	one, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := hand(one.conn); err != nil {
		one.close()
		return nil, err
	}
	return one.conn, nil
}

// renewDisk takes another disk in the place of that of a supervisor that has ended, which may have
// mounted it: it can be mounted once.
func (e *Executor) renewDisk(ctx context.Context, res *resources) (err error) {
	if res.ahead == nil || res.disk == nil {
		return nil
	}
	res.disk.Close()
	res.disk, err = e.disks.Take(ctx, 0)
	return err
}

// keptAhead returns the cgroups that were made before their attempts were known and have live
// supervisors: the specs of attempts name them.
func (e *Executor) keptAhead(groups []string) (kept map[string]bool, err error) {
	kept = make(map[string]bool)
	if !slices.ContainsFunc(groups, func(name string) bool {
		return strings.HasPrefix(name, e.groupPrefix()+aheadMark)
	}) {
		return kept, nil
	}
	keys, err := e.stored()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		spec, err := supervise.ReadSpec(e.dir(k))
		if err == nil && e.supervised(k.String()) { // Attempts that have ended have no spec.
			kept[spec.Group] = true
		}
	}
	return kept, nil
}

// groupOf returns the name of the cgroup of an attempt that is prepared or supervised.
func (e *Executor) groupOf(a *attempt) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.group == "" {
		if spec, err := supervise.ReadSpec(e.dir(a.key)); err == nil {
			a.group = spec.Group
		}
	}
	return cmp.Or(a.group, e.groupName(a.key))
}

// groupOfLive returns the name of the cgroup of an attempt, if it is prepared or supervised here.
func (e *Executor) groupOfLive(k key) string {
	e.mu.Lock()
	a := e.attempts[k]
	e.mu.Unlock()
	if a == nil {
		return e.groupName(k)
	}
	return e.groupOf(a)
}
