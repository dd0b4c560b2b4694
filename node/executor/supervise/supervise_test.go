package supervise_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor/cgroup"
	_ "berth/node/executor/early"
	"berth/node/executor/journal"
	"berth/node/executor/policy"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// program is the environment variable that makes this binary the program in a
// sandbox. Its value names the program's work.
const program = "BERTH_TEST_PROGRAM"

const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == waitingMark {
		os.Exit(awaitAttempt())
	}
	switch os.Getenv(program) {
	case "":
	case "exit 3":
		fmt.Println("leaving")
		os.Exit(3)
	case "sleep":
		<-time.After(time.Hour)
	case "allocate":
		for held := [][]byte{}; ; {
			page := make([]byte, 1<<20)
			for i := range page {
				page[i] = 1
			}
			held = append(held, page)
		}
	case "inspect":
		inspect()
		os.Exit(0)
	}
	if os.Getpid() == 1 {
		beGuest(m)
	}
	os.Exit(m.Run())
}

// inspect prints what a program sees of its sandbox.
func inspect() {
	status, err := os.ReadFile("/proc/self/status")
	fmt.Println(string(status), err)
	group, err := os.ReadFile("/proc/self/cgroup")
	fmt.Printf("group %s %v\n", group, err)
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	fmt.Println("oom score", strings.TrimSpace(string(score)), err)
	fmt.Println("uid", os.Getuid())
	groups, err := os.Getgroups()
	fmt.Println("groups", groups, err)
	fmt.Println("write root", os.WriteFile("/x", nil, 0o600))
	fmt.Println("write work", os.WriteFile("/work/x", nil, 0o600))
	fmt.Println("mount", syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
}

// attempt is one supervised attempt of a test.
type attempt struct {
	*testing.T
	dir    string
	conn   *supervise.Conn
	pid    int
	mounts *os.File // The mount namespace in which the first process starts; nil for the machine's.
}

// begin starts an attempt in which this binary does the work.
func begin(t *testing.T, work string, change func(*supervise.Spec)) *attempt {
	t.Helper()
	a := prepare(t, work, change)
	a.spawn(nil)
	return a
}

// prepare makes the directory of an attempt, for spawn.
func prepare(t *testing.T, work string, change func(*supervise.Spec)) *attempt {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("sandboxes are started by root")
	}
	a := &attempt{T: t, dir: t.TempDir()}
	spec := newSpec(t, a.dir, work)
	if change != nil {
		change(spec)
	}
	for _, err := range []error{
		os.WriteFile(spec.Sandbox.WorkSource, nil, 0o600),
		journal.Create(filepath.Join(a.dir, supervise.JournalFile)), spec.Write(a.dir),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// spawn starts a supervisor. The commands that ask sends are waiting when it
// starts.
func (a *attempt) spawn(ask func(*supervise.Conn) error) {
	a.Helper()
	conn, theirs, err := supervise.Pair()
	if err != nil {
		a.Fatal(err)
	}
	defer theirs.Close()
	if ask != nil {
		if err := ask(conn); err != nil {
			a.Fatal(err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		a.Fatal(err)
	}
	defer null.Close()
	mounts := a.mounts
	if mounts == nil {
		mounts = null
	}
	process, err := os.StartProcess("/proc/self/exe", []string{"berth", supervise.Command, a.dir}, &os.ProcAttr{
		Files: []*os.File{null, os.Stderr, os.Stderr, null, mounts, theirs, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		a.Fatal(err)
	}
	a.conn, a.pid = conn, process.Pid
	a.Cleanup(func() {
		conn.Close()
		_ = process.Kill() // It has exited, unless the test failed.
		_, _ = process.Wait()
	})
}

func newSpec(t *testing.T, dir, work string) *supervise.Spec {
	t.Helper()
	filter, err := policy.Seccomp()
	if err != nil {
		t.Fatal(err)
	}
	rules, _ := policy.Landlock()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := &supervise.Spec{
		Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Epoch: 7,
		Group:     fmt.Sprintf("test.%d.%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", ".")),
		MemoryMiB: 128, CPUMilli: 1000, Pids: 64, Timeout: time.Minute, StopGrace: 30 * time.Second,
		Sandbox: sandbox.Spec{
			UIDBase: 0x70000000, Hostname: "berth", OwnNetwork: true, ScratchMiB: 16,
			WorkSource: filepath.Join(dir, supervise.WorkFile),
			Argv:       []string{"/program"}, Env: []string{program + "=" + work, "GOMAXPROCS=1"},
			MaxProcs: 64, MaxFiles: 1024, Seccomp: filter, Landlock: rules,
			Binds: []sandbox.Bind{{Source: self, Target: "/program"}, {Source: os.DevNull, Target: os.DevNull, Device: true}},
		},
	}
	for _, name := range []string{"/usr", "/lib", "/lib64"} {
		// A dynamically linked binary needs these. The guest's is static.
		if info, err := os.Lstat(name); err == nil && info.IsDir() {
			spec.Sandbox.Binds = append(spec.Sandbox.Binds, sandbox.Bind{Source: name, Target: name})
		} else if target, err := os.Readlink(name); err == nil {
			spec.Sandbox.Links = append(spec.Sandbox.Links, sandbox.Link{Path: name, Target: target})
		}
	}
	return spec
}

// end waits for the attempt's end and returns its outcome.
func (a *attempt) end() compute.Outcome {
	a.Helper()
	for {
		event, err := a.conn.Next()
		if err != nil || event.Ended {
			break
		}
	}
	state, err := journal.Read(filepath.Join(a.dir, supervise.JournalFile))
	if err != nil {
		a.Fatal(err)
	}
	if state.Outcome == nil {
		a.Fatal("the supervisor ended without an outcome")
	}
	return *state.Outcome
}

// output returns the bytes of the attempt's log, which contain the program's output.
func (a *attempt) output() string {
	a.Helper()
	data, err := os.ReadFile(filepath.Join(a.dir, supervise.OutputFile))
	if err != nil {
		a.Fatal(err)
	}
	return string(data)
}

// check waits for the end, compares the outcome with the expected one, and checks
// that the cgroup is removed.
func (a *attempt) check(status compute.Status, reason compute.Reason, detail string, code int) compute.Outcome {
	a.Helper()
	o := a.end()
	if o.Status != status || o.Reason != reason || !strings.Contains(o.Detail, detail) || o.ExitCode != code {
		a.Errorf("ended as %s/%s %q code %d, want %s/%s %q code %d",
			o.Status, o.Reason, o.Detail, o.ExitCode, status, reason, detail, code)
	}
	if o.Epoch != 7 || o.Execution.IsZero() {
		a.Errorf("the outcome is of %s.%d", o.Execution, o.Epoch)
	}
	host, err := cgroup.Detect()
	if err != nil {
		a.Fatal(err)
	}
	names, err := host.Groups()
	if err != nil {
		a.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, fmt.Sprintf("test.%d.%s", os.Getpid(), a.Name())) {
			a.Errorf("cgroup %s is left", name)
		}
	}
	return o
}

func TestExitCode(t *testing.T) {
	a := begin(t, "exit 3", nil)
	o := a.check(compute.StatusFailed, compute.ReasonExitCode, "exit code 3", 3)
	if !o.Ran || o.Usage.CPUTime <= 0 || o.Usage.PeakMemoryMiB <= 0 || o.Usage.OutputLines != 1 {
		t.Errorf("usage is %+v", o.Usage)
	}
	if !strings.Contains(a.output(), "leaving") {
		t.Error("the output is lost")
	}
}

func TestOutOfMemory(t *testing.T) {
	a := begin(t, "allocate", nil)
	a.check(compute.StatusFailed, compute.ReasonOutOfMemory, "memory limit of 128 MiB reached", 137)
}

// TestMachineOutOfMemory has the code killed for memory below its own limit, as when
// the machine runs out of it: a group around the attempt's has a smaller limit.
func TestMachineOutOfMemory(t *testing.T) {
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if host.Version() != 1 {
		t.Skip("a group of version 2 that contains groups needs delegated controllers")
	}
	outer, err := host.Create(fmt.Sprintf("outer.%d", os.Getpid()), cgroup.Limits{MemoryBytes: 64 << 20, Pids: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := outer.Remove(patience); err != nil {
			t.Error(err)
		}
	})
	a := begin(t, "allocate", func(s *supervise.Spec) {
		s.Group = fmt.Sprintf("outer.%d/inner", os.Getpid())
	})
	a.check(compute.StatusSystemFailure, compute.ReasonOutOfMemory, "the machine ran out of memory", 137)
	for {
		if _, err := a.conn.Next(); err != nil {
			break // The supervisor, a thread of which is in the outer group, is gone.
		}
	}
}

// TestFilesExceedMemory checks that files count against the memory limit while they
// are unpacked, and that it is the code's failure when they reach it.
func TestFilesExceedMemory(t *testing.T) {
	a := prepare(t, "exit 3", func(s *supervise.Spec) { s.MemoryMiB, s.Sandbox.ScratchMiB = 24, 64 })
	var work bytes.Buffer
	files := []sandbox.WorkFile{{Path: "a/b/large", Text: strings.Repeat("x", 48<<20)}}
	if err := sandbox.WriteWork(&work, files); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, supervise.WorkFile), work.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	a.spawn(nil)
	if o := a.check(compute.StatusFailed, compute.ReasonOutOfMemory, "memory limit of 24 MiB", 0); o.Ran {
		t.Error("the outcome says that the code ran")
	}
}

// TestFirstProcessKilled ends the sandbox under a living supervisor. The node is
// healthy, so the end counts as the code's.
func TestFirstProcessKilled(t *testing.T) {
	for _, test := range []struct {
		signal syscall.Signal
		reason compute.Reason
		code   int
	}{
		{syscall.SIGKILL, compute.ReasonSignal, 128 + 9},
		// The kernel keeps the default action of a signal from process 1, which then exits.
		{syscall.SIGTERM, compute.ReasonExitCode, 2},
	} {
		t.Run(test.signal.String(), func(t *testing.T) {
			a := begin(t, "sleep", nil)
			if event, err := a.conn.Next(); err != nil || event.StartedAt == 0 {
				t.Fatalf("event %+v, %v, want the start", event, err)
			}
			if err := syscall.Kill(firstProcess(t, a.pid), test.signal); err != nil {
				t.Fatal(err)
			}
			o := a.check(compute.StatusFailed, test.reason, "the whole sandbox", test.code)
			if !o.Ran || o.Duration <= 0 {
				t.Errorf("nothing to charge: %+v", o)
			}
		})
	}
}

// firstProcess returns the only child of the supervisor.
func firstProcess(t *testing.T, supervisor int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", supervisor))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, name := range tasks {
		data, err := os.ReadFile(name)
		if err == nil && len(data) > 0 {
			_, err = fmt.Sscan(string(data), &pid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if pid == 0 {
		t.Fatal("the supervisor has no child")
	}
	return pid
}

func TestTimeLimit(t *testing.T) {
	a := begin(t, "sleep", func(s *supervise.Spec) { s.Timeout = 1500 * time.Millisecond })
	a.check(compute.StatusFailed, compute.ReasonTimeout, "time limit of 1.5 s reached", 143)
}

func TestStop(t *testing.T) {
	for _, test := range []struct {
		stop   compute.Stop
		status compute.Status
		reason compute.Reason
		code   int
	}{
		{compute.StopGraceful, compute.StatusCancelled, compute.ReasonStopped, 143},
		{compute.StopHard, compute.StatusAborted, compute.ReasonAborted, 137},
	} {
		t.Run(test.status.String(), func(t *testing.T) {
			a := begin(t, "sleep", nil)
			if event, err := a.conn.Next(); err != nil || event.StartedAt == 0 {
				t.Fatalf("event %+v, %v, want the start", event, err)
			}
			if err := a.conn.Stop(test.stop); err != nil {
				t.Fatal(err)
			}
			a.check(test.status, test.reason, "on request", test.code)
		})
	}
}

func TestDisconnectGrace(t *testing.T) {
	a := begin(t, "sleep", func(s *supervise.Spec) {
		s.DisconnectGrace, s.ContactAt = 10*time.Second, boottime.Now()
	})
	if event, err := a.conn.Next(); err != nil || event.StartedAt == 0 {
		t.Fatalf("event %+v, %v, want the start", event, err)
	}
	a.check(compute.StatusSystemFailure, compute.ReasonNodeLost, "for 10 s", 137)
}

// TestCreditsEndWhenCutOff has the credits of an attempt end. It is stopped if the leader, which
// would otherwise do so before, is not reached, and unless they were extended.
func TestCreditsEndWhenCutOff(t *testing.T) {
	for _, test := range []struct {
		name    string
		reached time.Duration // Before now.
		paid    []time.Duration
		ends    bool
	}{
		{"cut off", time.Minute, []time.Duration{10 * time.Millisecond}, true},
		{"cut off later", time.Minute, []time.Duration{time.Hour, 10 * time.Millisecond}, true},
		{"the leader decides", 0, []time.Duration{10 * time.Millisecond}, false},
		{"extended", time.Minute, []time.Duration{100 * time.Millisecond, time.Hour}, false},
		{"no end any more", time.Minute, []time.Duration{100 * time.Millisecond, -1}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := begin(t, "sleep", func(s *supervise.Spec) {
				s.DisconnectGrace, s.ContactAt = time.Hour, boottime.Now()-test.reached
			})
			if event, err := a.conn.Next(); err != nil || event.StartedAt == 0 {
				t.Fatalf("event %+v, %v, want the start", event, err)
			}
			for _, paid := range test.paid {
				until := boottime.Now() + paid
				if paid < 0 {
					until = 0
				}
				if err := a.conn.Paid(until); err != nil {
					t.Fatal(err)
				}
			}
			if test.ends {
				a.check(compute.StatusCancelled, compute.ReasonCredits, "not reached", 143)
				return
			}
			<-time.After(300 * time.Millisecond)
			if err := a.conn.Stop(compute.StopGraceful); err != nil {
				t.Fatal(err)
			}
			a.check(compute.StatusCancelled, compute.ReasonStopped, "", 143)
		})
	}
}

// TestNoStart checks that the code never starts when its attempt ends before.
func TestNoStart(t *testing.T) {
	for _, test := range []struct {
		name   string
		reach  time.Duration // The grace; contact was at the boot of the machine.
		ask    func(*supervise.Conn) error
		status compute.Status
		reason compute.Reason
	}{
		{"cut off", time.Nanosecond, nil, compute.StatusSystemFailure, compute.ReasonNodeLost},
		{
			"stopped", 0, func(c *supervise.Conn) error { return c.Stop(compute.StopGraceful) },
			compute.StatusCancelled, compute.ReasonStopped,
		},
		{
			"aborted", 0, func(c *supervise.Conn) error { return c.Stop(compute.StopHard) },
			compute.StatusAborted, compute.ReasonAborted,
		},
		{
			"preempted", 0, func(c *supervise.Conn) error { return c.Preempt(time.Hour) },
			compute.StatusSystemFailure, compute.ReasonPreempted,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := prepare(t, "exit 3", func(s *supervise.Spec) { s.DisconnectGrace = test.reach })
			a.spawn(test.ask)
			if o := a.check(test.status, test.reason, "", 0); o.Ran || !o.StartedAt.IsZero() {
				t.Errorf("the code was started: %+v", o)
			}
			if strings.Contains(a.output(), "leaving") {
				t.Error("the code has written")
			}
		})
	}
}

// TestLaterNode connects as a restarted node does, and receives the past events.
func TestLaterNode(t *testing.T) {
	a := begin(t, "sleep", nil)
	first, err := a.conn.Next()
	if err != nil {
		t.Fatal(err)
	}
	a.conn.Close()
	if a.conn, err = supervise.Dial(a.dir); err != nil {
		t.Fatal(err)
	}
	defer a.conn.Close()
	if again, err := a.conn.Next(); err != nil || again != first {
		t.Fatalf("got %+v, %v, want %+v", again, err, first)
	}
	if err := a.conn.Stop(compute.StopHard); err != nil {
		t.Fatal(err)
	}
	a.check(compute.StatusAborted, compute.ReasonAborted, "", 137)
}

// TestStartsOnce starts more supervisors for one attempt. They must not run it.
func TestStartsOnce(t *testing.T) {
	a := begin(t, "sleep", nil)
	if _, err := a.conn.Next(); err != nil {
		t.Fatal(err)
	}
	running := a.conn
	a.spawn(nil) // While the first lives.
	if event, err := a.conn.Next(); err == nil {
		t.Errorf("a second supervisor says %+v", event)
	}
	if err := running.Stop(compute.StopHard); err != nil {
		t.Fatal(err)
	}
	a.conn = running
	a.check(compute.StatusAborted, compute.ReasonAborted, "", 137)
	a.spawn(nil) // After it ended.
	if event, err := a.conn.Next(); err == nil {
		t.Errorf("a third supervisor says %+v", event)
	}
}

func TestMissingProgram(t *testing.T) {
	a := begin(t, "sleep", func(s *supervise.Spec) { s.Sandbox.Argv = []string{"/nowhere"} })
	o := a.check(compute.StatusSystemFailure, compute.ReasonStartFailed, "/nowhere", 0)
	if o.Ran {
		t.Error("the outcome says that the code ran")
	}
}

func TestSandboxFromInside(t *testing.T) {
	a := begin(t, "inspect", nil)
	a.check(compute.StatusCompleted, compute.ReasonNone, "", 0)
	output := a.output()
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapAmb:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "uid 1000", "Gid:\t1000\t1000\t1000\t1000", "groups [] <nil>",
		"write work <nil>", "mount operation not permitted", "oom score 500 <nil>",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(output, "write root <nil>") || strings.Contains(output, "test.") {
		t.Error("the program writes to its root or sees the name of its cgroup")
	}
	if t.Failed() {
		t.Log(output)
	}
}
