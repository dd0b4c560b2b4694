package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/journal"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise/mask"
	"berth/node/logs"
)

const (
	drainTimeout       = 5 * time.Second  // For the rest of the output, once the code has ended.
	killTimeout        = 10 * time.Second // For the processes of a killed cgroup to exit.
	maxCommands        = 16               // Commands that wait for the loop.
	pumpBytes          = 64 << 10         // The capacity of a pipe.
	supervisorOOMScore = "-900"           // The OOM killer's last choice.
	codeOOMScore       = "500"            // The OOM killer's first choice: the code.
	cloneNewNet        = 0x40000000
)

// supervisor is the state of one attempt. The loop owns all but the fields after mu.
type supervisor struct {
	process  *process
	spec     *Spec
	journal  *journal.Journal
	group    *cgroup.Group
	box      Box
	log      *logs.Writer
	commands chan command
	over     chan struct{}   // Closed when nobody reads commands any more.
	early    <-chan struct{} // Closed when the commands from before the start are in commands; nil in tests.
	now      func() time.Time
	listener int // The socket at ControlFile.

	connected sync.WaitGroup // The goroutines that serve connections.

	limit     *timer // The execution's time limit.
	grace     *timer // The end of the grace of a graceful stop.
	contact   *timer // The end of the disconnect grace.
	unpaid    *timer // The end of the credits, once the node has said it.
	notice    *timer // The end of a preemption notice.
	readiness *timer // The end of the time in which the code must be ready.

	preempted    bool // A preemption was requested.
	cause        cause
	lease        boottime.Lease
	reached      time.Duration // Boottime of the last contact with the leader.
	paid         time.Duration // Boottime of the end of the credits; 0 if none is known.
	storage      *os.File      // The socket to the process that mounts the bucket; nil for none.
	feed         *os.File      // Where the input of the execution is written; nil for none.
	work         *os.File      // The work directory, which outlives the sandbox; nil if it is not open.
	warm         *warm         // The sandbox that was made before the attempt was known; nil for none.
	startUnknown bool          // It is unknown whether the code started.
	started      time.Duration // Boottime; 0 before the code started.
	ended        time.Duration
	cpuBase      time.Duration // CPU time used before the code started.

	mu sync.Mutex

	conns  map[*os.File]bool
	hungUp bool     // No connection is served any more.
	events []string // All events so far, for nodes that connect later.

	secrets *mask.Secrets // Hidden in output.

	ready    bool   // The code answers its probe.
	wasReady bool   // It did before.
	notReady string // Why it does not.
}

// open makes the pid file, the timers, the socket and the output of the supervisor.
func (s *supervisor) open() error {
	// Without the privilege, as in a container, the default remains.
	_ = os.WriteFile(scoreFile, []byte(supervisorOOMScore), 0)
	if err := writePID(); err != nil {
		return err
	}
	for _, t := range []**timer{&s.limit, &s.grace, &s.contact, &s.unpaid, &s.notice, &s.readiness} {
		var err error
		if *t, err = newTimer(); err != nil {
			return err
		}
	}
	listener, err := listen()
	if err != nil {
		return err
	}
	s.listener = listener
	s.connected.Go(func() { accept(listener, func(file *os.File) { s.serve(file, func(int) {}) }) })
	first, err := claim(FDConn, "node")
	if err != nil {
		return err
	}
	early := make(chan struct{})
	s.early = early
	s.connected.Go(func() { s.serveFirst(first, early) })
	if s.log, err = logs.Create(OutputFile, logs.Limits{}); err != nil {
		return err
	}
	return s.renew(s.spec.ContactAt)
}

func (s *supervisor) close() {
	for _, t := range []*timer{s.limit, s.grace, s.contact, s.unpaid, s.notice, s.readiness} {
		if t != nil {
			t.close()
		}
	}
	for _, name := range []string{ControlFile, PortFile, PIDFile} {
		os.Remove(name)
	}
	for _, file := range []*os.File{s.work, s.feed} {
		if file != nil {
			file.Close()
		}
	}
	if s.box != nil {
		s.box.Release()
	}
	if s.group != nil && s.spec.Container != nil {
		if err := s.group.Remove(killTimeout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	s.journal.Close()
}

// writePID writes the process's id and start time. Together they identify it until
// the machine reboots.
func writePID() error {
	start, err := StartTime(os.Getpid())
	if err == nil {
		err = os.WriteFile(PIDFile, fmt.Appendf(nil, "%d %d\n", os.Getpid(), start), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	return nil
}

// instant returns the wall-clock time, for display. Durations use boottime.
func (s *supervisor) instant() compute.Instant { return compute.InstantOf(s.now()) }

// StartTime returns when the process started, in ticks since boot.
func StartTime(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read start time: %w", err)
	}
	// The name, in parentheses, may contain anything. Twenty fields follow it.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("read start time of %d: short line", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// supervise runs the attempt to its end and returns its outcome.
func (s *supervisor) supervise() compute.Outcome {
	pumps, err := s.start()
	if err != nil {
		return s.finish(ending{err: err}, pumps)
	}
	ends := make(chan ending, 1)
	go func() {
		exit, err := s.box.Wait()
		ends <- ending{status: exit.Status, lost: err != nil, oom: exit.OOM}
	}()
	end := s.loop(ends)
	s.ended = boottime.Now()
	// When the first process ends, the kernel kills the rest of the sandbox.
	if status := s.box.Close(); end.lost {
		end.status = status
	}
	return s.finish(end, pumps)
}

// start starts the code, after the journal has recorded that durably.
func (s *supervisor) start() (*pumps, error) {
	for fd := FDHand; fd <= FDStorage; fd++ {
		syscall.CloseOnExec(fd)
	}
	pumps, err := s.openBox()
	if pumps == nil {
		return nil, err
	}
	// The first process builds the sandbox meanwhile.
	saved := make(chan error, 1)
	go func() { saved <- s.save() }()
	err = errors.Join(err, s.open())
	pumps.start(s)
	if err = errors.Join(err, <-saved); err == nil {
		err = s.box.Await()
	}
	if err == nil {
		s.openWork()
	}
	if err == nil {
		err = s.launch()
	}
	if err != nil && s.box != nil {
		discard(s.box)
	}
	return pumps, err
}

// save makes durable that the code is about to start: the journal's line, and its
// directory entry.
func (s *supervisor) save() error {
	if err := fault.Error("supervisor.starting.before"); err != nil {
		return err
	}
	if err := s.journal.Starting(s.instant()); err != nil {
		return err
	}
	fault.Point("supervisor.starting.after")
	for _, dir := range []string{".", "..", "../.."} {
		if err := journal.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// openBox gives the code the sandbox that was made ahead, or makes a box. It returns the pumps
// of the code's output; nil if there are none.
func (s *supervisor) openBox() (*pumps, error) {
	if s.warm != nil {
		if !s.warm.fits(s.spec) {
			s.warm.close()
			return nil, errors.New("the sandbox that was made ahead is not what the attempt needs")
		}
		s.group, s.box = s.warm.group, warmed{sandboxed{s.warm.box, s.warm.group}, &s.spec.Sandbox}
		return s.warm.pumps, nil
	}
	pumps, stdout, stderr, err := newPumps()
	if err != nil {
		return nil, err
	}
	stdin, feed, err := openInput()
	s.feed = feed
	if err == nil {
		err = s.fork(stdin, stdout, stderr)
		stdin.Close()
	}
	stdout.Close()
	stderr.Close()
	return pumps, err
}

// fork starts the first process of the sandbox with all limits but the CPU quota,
// which must not slow down the setup.
func (s *supervisor) fork(stdin, stdout, stderr *os.File) (err error) {
	if err := s.bindStorage(); err != nil {
		return err
	}
	if s.spec.Container != nil {
		host, err := s.process.groups(s.spec)
		if err != nil {
			return err
		}
		return s.openContainers(host, stdout, stderr)
	}
	if s.spec.MountAt != "" {
		mount, err := claim(FDMount, s.spec.MountAt)
		if err != nil {
			return err
		}
		defer mount.Close()
		s.spec.Sandbox.Binds = append(s.spec.Sandbox.Binds, sandbox.Bind{Target: s.spec.MountAt, Mount: mount})
	}
	var box *sandbox.Sandbox
	s.group, box, err = s.process.makeSandbox(s.spec, stdin, stdout, stderr)
	if err != nil {
		return err
	}
	s.box = sandboxed{box, s.group}
	return nil
}

// launch starts the code and its time limit.
func (s *supervisor) launch() error {
	for _, note := range s.spec.Notes {
		s.note(note)
	}
	if err := s.meterCPU(); err != nil {
		return err
	}
	if err := s.mayStart(); err != nil {
		return err
	}
	at, now := boottime.Now(), s.instant()
	fault.Point("supervisor.execute.before")
	if err := s.execute(); err != nil {
		s.startUnknown = errors.Is(err, sandbox.ErrNoReport)
		return err
	}
	fault.Point("supervisor.execute.after")
	if s.spec.Container == nil || s.spec.Container.Compose == nil {
		s.detachStorage() // Docker Compose makes containers later too.
	}
	if s.spec.Container != nil {
		at, now = boottime.Now(), s.instant() // The engine's work before the code starts is free.
	}
	s.started = at
	if err := s.journal.Started(now); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fault.Point("supervisor.started")
	s.broadcast(fmt.Sprintf("started %d %d", s.journal.State().ExecletAt, now))
	if s.cause != causeNone {
		s.kill(s.cause) // It was to end while it started, when there was nothing to kill yet.
	}
	return errors.Join(s.limit.set(at+s.spec.Timeout), s.serveCode())
}

// meterCPU begins to count the CPU time of the code, and limits it. The slice of an
// engine does not exist before its first container, which has the limit itself.
func (s *supervisor) meterCPU() (err error) {
	if s.spec.Container != nil && s.spec.Container.Slice != "" {
		return nil
	}
	if s.cpuBase, err = s.group.CPUTime(); err != nil {
		return err
	}
	return s.group.LimitCPU(s.spec.CPUMilli)
}

// execute has the first process unpack the files and start the code. It gives up
// when a command or the end of the lease requires, as long as that takes.
func (s *supervisor) execute() error {
	if s.spec.Unpack == 0 {
		return s.box.Execute(0)
	}
	done := make(chan error, 1)
	go func() { done <- s.box.Execute(s.spec.Unpack) }()
	for {
		var err error
		select {
		case err := <-done:
			return err
		case c := <-s.commands:
			err = s.handleEarly(c)
		case <-s.contact.C:
			s.setCause(causeNodeLost)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if s.cause != causeNone {
			s.kill(s.cause) // Execute returns.
		}
	}
}

// loop waits for the end of the code, and ends it when a command or a timer requires.
func (s *supervisor) loop(ends <-chan ending) ending {
	for {
		select {
		case end := <-ends:
			return end
		case c := <-s.commands:
			s.handle(c)
		case <-s.limit.C:
			s.note(fmt.Sprintf("time limit of %s reached", seconds(s.spec.Timeout)))
			s.stop(causeTimeout)
		case <-s.contact.C:
			s.note(fmt.Sprintf("the cluster was not reached for %s", seconds(s.spec.DisconnectGrace)))
			s.kill(causeNodeLost)
		case <-s.unpaid.C:
			s.endUnpaid()
		case <-s.notice.C:
			s.stop(causePreempted)
		case <-s.readiness.C:
			if why := s.unready(); why != "" {
				s.note(why)
				s.stop(causeNotReady)
			}
		case <-s.grace.C:
			s.kill(s.cause)
		}
	}
}

func (s *supervisor) handle(c command) {
	if c.note != "" {
		s.note(c.note)
		return
	}
	if c.preempt {
		s.preempt(c.notice)
		return
	}
	if c.credits {
		s.payUntil(c.paid)
		return
	}
	var err error
	switch c.stop {
	case compute.StopHard:
		s.kill(causeAborted)
	case compute.StopGraceful:
		s.stop(causeStopped)
	case compute.StopNone:
		err = s.renew(c.contact)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// renew renews the lease: the leader was last reached at that boottime. The
// contact that a restarted node process reports may be older than the previous
// process's last one.
func (s *supervisor) renew(at time.Duration) error {
	s.reached = max(s.reached, min(at, boottime.Now()))
	if !s.lease.Renew(at, boottime.Now()) || fault.Planted(fault.EndlessLease) {
		return nil
	}
	return s.contact.set(s.lease.Until())
}

// stop sends SIGTERM to the code and starts the grace. The first cause stands.
func (s *supervisor) stop(why cause) {
	if s.cause != causeNone {
		return
	}
	s.cause = why
	err := s.box.Terminate()
	if e := s.grace.set(boottime.Now() + s.spec.StopGrace); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		s.kill(why)
	}
}

// kill kills every process in the sandbox.
func (s *supervisor) kill(why cause) {
	s.setCause(why)
	// Processes outside the cgroup may start others in it, so they are killed first.
	err := errors.Join(s.box.Kill(), s.group.Kill(killTimeout))
	if err != nil && s.cutStorage() {
		err = errors.Join(s.box.Kill(), s.group.Kill(killTimeout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// setCause records why the attempt ends. A hard stop replaces a graceful stop, a preemption
// or the end of the credits. Otherwise the first cause stands.
func (s *supervisor) setCause(why cause) {
	gentle := s.cause == causeStopped || s.cause == causePreempted || s.cause == causeUnpaid
	if s.cause == causeNone || gentle && why == causeAborted {
		s.cause = why
	}
}
