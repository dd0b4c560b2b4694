package executor_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/cgroup"
	"berth/node/executor/prepare"
	"berth/node/executor/supervise"
)

// standIn is the environment variable that makes this binary a stand-in for the
// node's process. Its value is the file with the order.
const standIn = "BERTH_TEST_NODE"

// order is the input of a stand-in.
type order struct {
	DataDir string
	Node    compute.NodeID
	Mount   string
	Work    compute.Work
}

// runStandIn runs the process of a node whose cluster accepts no outcome. It prints
// when the executor is open and when the code started, and runs until it is killed.
func runStandIn(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var o order
	if err := cbor.Unmarshal(data, &o); err != nil {
		return err
	}
	s := &unreachable{state: newState()}
	s.state.work[o.Work.Execution.ID] = o.Work
	cfg := executor.Config{Config: prepare.Config{DataDir: o.DataDir, Node: o.Node, Network: compute.NetworkNone}}
	if o.Mount != "" {
		cfg.Mounts = []prepare.Mount{{Name: "marks", Path: o.Mount, Always: true}}
	}
	e, err := executor.Open(cfg, s, s, s)
	if err != nil {
		return err
	}
	fmt.Println("open")
	return e.Run(context.Background())
}

// unreachable is a state that accepts no outcomes.
type unreachable struct{ *state }

func (u *unreachable) StartAttempt(ctx context.Context, start compute.AttemptStart) error {
	fmt.Println("started")
	return u.state.StartAttempt(ctx, start)
}

func (u *unreachable) FinishAttempt(context.Context, compute.Outcome) error {
	return compute.Errorf(compute.CodeUnavailable, "no leader")
}

// standInNode is a node whose first process is a stand-in.
type standInNode struct {
	*node
	process *exec.Cmd
	stdout  *bufio.Reader
}

// startStandIn starts a stand-in with the work, on the data directory of a node that
// does not run yet.
func startStandIn(t *testing.T, n *node, w compute.Work, mount string) *standInNode {
	t.Helper()
	data, err := cbor.Marshal(order{DataDir: n.cfg.DataDir, Node: n.cfg.Node, Mount: mount, Work: w})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), standIn+"="+file), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &standInNode{node: n, process: cmd, stdout: bufio.NewReader(out)}
}

// expect waits until the stand-in prints the word.
func (s *standInNode) expect(word string) {
	s.t.Helper()
	for {
		line, err := s.stdout.ReadString('\n')
		if err != nil {
			s.t.Fatalf("stand-in ended before it said %q: %v", word, err)
		}
		if strings.TrimSpace(line) == word {
			return
		}
	}
}

// kill ends the stand-in as a crash would.
func (s *standInNode) kill() {
	s.t.Helper()
	if err := s.process.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, s.stdout)
	_ = s.process.Wait() // The error is that it was killed.
}

// idle returns a node that does not run yet.
func idle(t *testing.T) *node {
	t.Helper()
	n := newNode(t, nil)
	n.stop()
	return n
}

// supervisor returns the process that supervises the execution.
func (n *node) supervisor(id compute.ExecutionID) int {
	n.t.Helper()
	var pid int
	name := filepath.Join(n.cfg.DataDir, "attempts", id.String(), "1", supervise.PIDFile)
	await(n.t, "the supervisor's pid", func() bool {
		data, err := os.ReadFile(name)
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(data), &pid)
		return err == nil
	})
	return pid
}

const counting = `
import time
print("begin")
for i in range(10):
    time.sleep(0.1)
    print("tick", i)
raise SystemExit(5)
`

func TestNodeKilledWhileCodeRuns(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: counting})
	first := startStandIn(t, n, w, "")
	first.expect("started")
	first.kill()
	n.place(w)
	n.run()
	o := n.end(w.Execution.ID)
	ending{compute.StatusFailed, compute.ReasonExitCode, "exit code 5", 5}.check(t, o)
	output := n.output(w.Execution.ID)
	if strings.Count(output, "begin") != 1 || strings.Count(output, "tick") != 10 {
		t.Errorf("the output is not that of one whole run:\n%s", output)
	}
}

func TestAdoptedAttemptIsStopped(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"})
	first := startStandIn(t, n, w, "")
	first.expect("started")
	first.kill()
	w.Execution.Stop = compute.StopHard
	n.place(w)
	n.run()
	ending{compute.StatusAborted, compute.ReasonAborted, "", 137}.check(t, n.end(w.Execution.ID))
}

func TestCodeEndsWhileThereIsNoNode(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: counting})
	first := startStandIn(t, n, w, "")
	first.expect("started")
	pid := n.supervisor(w.Execution.ID)
	first.kill()
	await(t, "the end of the supervisor", func() bool { return gone(pid) })
	n.place(w)
	n.run()
	ending{compute.StatusFailed, compute.ReasonExitCode, "exit code 5", 5}.check(t, n.end(w.Execution.ID))
}

// gone reports whether the process has exited, reaped or not.
func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(data, []byte(") Z "))
}

func TestNodeAndSupervisorKilled(t *testing.T) {
	t.Parallel()
	n := idle(t)
	marks := t.TempDir()
	if err := os.Chmod(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	code := "import time\nwhile True:\n    open('/mnt/marks/alive', 'w').close()\n    time.sleep(0.01)"
	w := n.newWork(compute.Bundle{Code: code})
	first := startStandIn(t, n, w, marks)
	first.expect("started")
	alive := filepath.Join(marks, "alive")
	await(t, "a mark of the code", func() bool { return os.Remove(alive) == nil })
	pid := n.supervisor(w.Execution.ID)
	first.kill()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the supervisor", func() bool { return gone(pid) })
	n.place(w)
	n.run()
	ending{compute.StatusSystemFailure, compute.ReasonSupervisorLost, "was killed", 0}.check(t, n.end(w.Execution.ID))
	os.Remove(alive)
	deadline := time.NewTimer(200 * time.Millisecond)
	<-deadline.C
	if _, err := os.Stat(alive); err == nil {
		t.Error("the code keeps running without a supervisor")
	}
}

// TestLostRecordIsNotStartedAgain checks that a node without a record of an
// attempt does not start it if it has started according to the state.
func TestLostRecordIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	w := n.newWork(compute.Bundle{Code: "print('again')"})
	w.Attempt.StartedAt = 1
	id := n.place(w)
	ending{compute.StatusSystemFailure, compute.ReasonSupervisorLost, "record", 0}.check(t, n.end(id))
	if got := n.output(id); got != "" {
		t.Errorf("it printed %q", got)
	}
}

// TestSupervisorKilledUnderALivingNode kills only the supervisor. The attempt ends
// as lost, and the measurement of its GPUs ends too.
func TestSupervisorKilledUnderALivingNode(t *testing.T) {
	t.Parallel()
	m := &meter{}
	n := newNode(t, func(c *executor.Config) { c.Meter = m })
	id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
	await(t, "the start", func() bool { return n.started(id) })
	if err := syscall.Kill(n.supervisor(id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ending{compute.StatusSystemFailure, compute.ReasonSupervisorLost, "", 0}.check(t, n.end(id))
	if starts, ends := m.count(id); starts != 1 || ends != 1 {
		t.Errorf("watched %d times and ended %d times, want 1 and 1", starts, ends)
	}
}

// TestUnreadableJournal checks that an attempt whose journal cannot be opened or
// read never counts as not started, and that the node survives it.
func TestUnreadableJournal(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(string) error{
		"read": func(name string) error { return os.Symlink("/proc/self/mem", name) },
		"open": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, restart), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, nil)
				id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
				await(t, "the start", func() bool { return n.started(id) })
				pid := n.supervisor(id)
				if restart {
					n.stop()
				}
				file := filepath.Join(n.cfg.DataDir, "attempts", id.String(), "1", supervise.JournalFile)
				for _, err := range []error{os.Remove(file), spoil(file), syscall.Kill(pid, syscall.SIGKILL)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				if restart {
					await(t, "the end of the supervisor", func() bool { return gone(pid) })
					n.run()
				}
				ending{compute.StatusSystemFailure, compute.ReasonSupervisorLost, "record lost", 0}.check(t, n.end(id))
			})
		}
	}
}

// TestSupervisorDoesNotAnswer checks that an attempt reported as lost is killed.
func TestSupervisorDoesNotAnswer(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
	await(t, "the start", func() bool { return n.started(id) })
	pid := n.supervisor(id)
	n.stop()
	if err := os.Remove(filepath.Join(n.cfg.DataDir, "attempts", id.String(), "1", supervise.ControlFile)); err != nil {
		t.Fatal(err)
	}
	n.run()
	ending{compute.StatusSystemFailure, compute.ReasonSupervisorLost, "does not answer", 0}.check(t, n.end(id))
	await(t, "the end of the supervisor", func() bool { return gone(pid) })
}

// TestNodeKilledAnywhere kills the node at random points of an attempt's life. The
// code must start at most once, and there must be one outcome.
func TestNodeKilledAnywhere(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	if err := os.Chmod(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	starts := make(map[compute.Reason]int)
	for round := range 12 {
		n := idle(t)
		n.cfg.Mounts = []prepare.Mount{{Name: "marks", Path: marks, Always: true}}
		n.cfg.Logger = slog.New(slog.DiscardHandler)
		code := fmt.Sprintf("f = open('/mnt/marks/%d', 'a')\nf.write('x')\nf.close()\nimport time\ntime.sleep(0.02)", round)
		w := n.newWork(compute.Bundle{Code: code})
		first := startStandIn(t, n, w, marks)
		first.expect("open")
		deadline := time.NewTimer(rand.N(120 * time.Millisecond))
		<-deadline.C
		first.kill()
		n.place(w)
		stop := n.run()
		o := n.end(w.Execution.ID)
		stop()
		starts[o.Reason]++
		mark, err := os.ReadFile(filepath.Join(marks, fmt.Sprint(round)))
		if len(mark) > 1 || o.Status == compute.StatusCompleted && err != nil {
			t.Errorf("round %d: ended as %s, the code was started %d times", round, o.Status, len(mark))
		}
		if len(n.outcomes) != 1 {
			t.Errorf("round %d: %d outcomes", round, len(n.outcomes))
		}
	}
	t.Logf("reasons of the ends: %v", starts)
}

// TestSupervisorKilledAnywhere does the same with the supervisor. The code must
// start at most once, and its cgroup must be removed.
func TestSupervisorKilledAnywhere(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	if err := os.Chmod(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, func(c *executor.Config) { c.Mounts = []prepare.Mount{{Name: "marks", Path: marks, Always: true}} })
	ends := make(map[compute.Reason]int)
	for round := range 12 {
		code := fmt.Sprintf("f = open('/mnt/marks/%d', 'a')\nf.write('x')\nf.close()\nimport time\ntime.sleep(600)", round)
		w := n.newWork(compute.Bundle{Code: code})
		id := n.place(w)
		pid := n.supervisor(id)
		deadline := time.NewTimer(rand.N(80 * time.Millisecond))
		<-deadline.C
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		o := n.end(id)
		ends[o.Reason]++
		mark, _ := os.ReadFile(filepath.Join(marks, fmt.Sprint(round)))
		if o.Status != compute.StatusSystemFailure || len(mark) > 1 {
			t.Errorf("round %d: ended as %s/%s, the code was started %d times", round, o.Status, o.Reason, len(mark))
		}
		host, err := cgroup.Detect()
		if err != nil {
			t.Fatal(err)
		}
		names, err := host.Groups()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, id.String()) }) {
			t.Errorf("round %d: the cgroup is left", round)
		}
	}
	t.Logf("reasons of the ends: %v", ends)
}

// TestOutcomeWaitsForTheCluster checks that an outcome which the cluster cannot
// accept yet is still sent after a restart: from the journal of an attempt whose code
// ran, and from the outbox if it never started.
func TestOutcomeWaitsForTheCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bundle compute.Bundle
		status compute.Status
		stored int // Files of the outbox.
		output string
	}{
		"ended":         {compute.Bundle{Code: "print(1)"}, compute.StatusCompleted, 0, "1\n"},
		"left outputs":  {compute.Bundle{Code: "import os\nos.mkdir('outputs')\nopen('outputs/x', 'w')"}, compute.StatusCompleted, 1, ""},
		"never started": {compute.Bundle{Code: "pass", FileName: "../main.py"}, compute.StatusFailed, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOutcomeWaits(t, test.bundle, test.status, test.stored, test.output)
		})
	}
}

func testOutcomeWaits(t *testing.T, bundle compute.Bundle, status compute.Status, stored int, output string) {
	n := newNode(t, func(c *executor.Config) { c.Blobs = newMemory() })
	refusals := 0
	n.update(func() {
		n.finish = func(compute.Outcome) error {
			refusals++
			return compute.Errorf(compute.CodeUnavailable, "no leader")
		}
	})
	id := n.place(n.newWork(bundle))
	outbox := filepath.Join(n.cfg.DataDir, "outbox")
	await(t, "two refusals", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return refusals >= 2 })
	n.stop()
	if entries, err := os.ReadDir(outbox); err != nil || len(entries) != stored {
		t.Fatalf("outbox has %d entries, %v; want %d", len(entries), err, stored)
	}
	n.update(func() { n.finish = nil })
	n.run()
	if o := n.end(id); o.Status != status {
		t.Errorf("ended as %s %q", o.Status, o.Detail)
	}
	await(t, "an empty outbox", func() bool { entries, err := os.ReadDir(outbox); return err == nil && len(entries) == 0 })
	// A stale view still contains the attempt. It must not start again.
	n.place(n.newWork(compute.Bundle{Code: "print(2)"}))
	w := n.newWork(bundle)
	w.Execution.ID, w.Attempt.Execution = id, id
	n.place(w)
	await(t, "the end of the other execution", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.outcomes) == 2 })
	if out := n.output(id); out != output {
		t.Errorf("output is %q, want one run's: %q", out, output)
	}
}

// TestRefusedOutcomeIsFinal checks that a finally refused outcome is dropped.
func TestRefusedOutcomeIsFinal(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	calls := 0
	n.update(func() {
		n.finish = func(compute.Outcome) error {
			calls++
			return compute.Errorf(compute.CodeConflict, "the attempt has ended")
		}
	})
	n.place(n.newWork(compute.Bundle{Code: "print(1)"}))
	await(t, "a refusal", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return calls == 1 })
	outbox := filepath.Join(n.cfg.DataDir, "outbox")
	await(t, "an empty outbox", func() bool { entries, err := os.ReadDir(outbox); return err == nil && len(entries) == 0 })
}

// TestDisconnected checks that code ends when its node does not reach the cluster,
// even if its disconnect grace is zero.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	last, since := time.Now(), boottime.Now()
	n := newNode(t, func(c *executor.Config) { c.Contact = func() time.Duration { return since } })
	w := n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"})
	w.Execution.DisconnectGrace = 0
	o := n.end(n.place(w))
	ending{compute.StatusSystemFailure, compute.ReasonNodeLost, "15 s", 137}.check(t, o)
	if silent := o.EndedAt.Time().Sub(last); silent < attempt.Lease {
		t.Errorf("ended %v after the last contact", silent)
	}
}

// TestUnpaidWhenCutOff checks that the supervisor learns when the credits of its attempt end: a node
// that does not reach the cluster does not go on with work that nobody pays for.
func TestUnpaidWhenCutOff(t *testing.T) {
	t.Parallel()
	since := boottime.Now() - attempt.Lease
	n := newNode(t, func(c *executor.Config) { c.Contact = func() time.Duration { return since } })
	id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
	await(t, "the start", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.starts) == 1 })
	n.update(func() {
		warned := *n.work[id].Execution
		warned.CreditsEnd = compute.InstantOf(time.Now().Add(100 * time.Millisecond))
		n.work[id] = compute.Work{Attempt: n.work[id].Attempt, Execution: &warned}
	})
	await(t, "noted", func() bool { return n.says(id, "credits end at") })
	ending{compute.StatusCancelled, compute.ReasonCredits, "not reached", 143}.check(t, n.end(id))
	if !n.says(id, "credits ended, and the cluster is not reached") {
		t.Error("its output does not say so")
	}
}

// TestConnected is the control: contacts as old as those of a healthy node keep
// code running beyond the shortest lease.
func TestConnected(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) {
		c.Contact = func() time.Duration { return boottime.Now() - healthyAge }
	})
	w := n.newWork(compute.Bundle{Code: fmt.Sprintf("import time\ntime.sleep(%v)",
		(attempt.Lease + 2*healthyAge).Seconds())})
	w.Execution.DisconnectGrace = time.Second
	if o := n.end(n.place(w)); o.Status != compute.StatusCompleted {
		t.Errorf("ended as %s/%s %q", o.Status, o.Reason, o.Detail)
	}
}

// healthyAge is the maximum age of a healthy node's last contact when it is passed
// on: the longest interval between two heartbeats.
const healthyAge = 3300 * time.Millisecond

// TestNoStartWithoutContact checks that a node process starts no attempt
// before it has reached the leader. Its assignments may be old, and the leader may
// be about to give them up. It starts them after the contact.
func TestNoStartWithoutContact(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: "print(1)"})
	n.noContact = true
	id := n.place(w)
	n.reads = 0
	n.run()
	await(t, "another read", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.reads >= 3 })
	if _, err := os.Stat(filepath.Join(n.cfg.DataDir, "attempts", id.String())); !os.IsNotExist(err) {
		t.Errorf("its directory exists: %v", err)
	}
	n.mu.Lock()
	n.noContact = false
	n.mu.Unlock()
	ending{compute.StatusCompleted, compute.ReasonNone, "", 0}.check(t, n.end(id))
}

// TestRestartedNodeWithoutContact checks that a node process which has not reached
// the leader does not end attempts whose lease the previous process renewed.
func TestRestartedNodeWithoutContact(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: "import time\ntime.sleep(4)"})
	first := startStandIn(t, n, w, "")
	first.expect("started")
	first.kill()
	n.cfg.Contact = func() time.Duration { return 0 }
	n.place(w)
	stop := n.run()
	deadline := time.NewTimer(3 * time.Second) // Longer than the interval of contact reports.
	<-deadline.C
	stop()
	n.cfg.Contact = func() time.Duration { return 1 }
	n.run()
	ending{compute.StatusCompleted, compute.ReasonNone, "", 0}.check(t, n.end(w.Execution.ID))
}

// TestNodeDeadForTheGrace checks that code ends after its lease when its node is
// dead, so that nobody renews the lease.
func TestNodeDeadForTheGrace(t *testing.T) {
	t.Parallel()
	n := idle(t)
	w := n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"})
	w.Execution.DisconnectGrace = attempt.Lease + time.Second
	first := startStandIn(t, n, w, "")
	first.expect("started")
	pid := n.supervisor(w.Execution.ID)
	first.kill()
	await(t, "the end of the supervisor", func() bool { return gone(pid) })
	n.place(w)
	n.run()
	ending{compute.StatusSystemFailure, compute.ReasonNodeLost, "16 s", 137}.check(t, n.end(w.Execution.ID))
}
