package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of strace.
const (
	attachLimit = 30 * time.Second // To attach to every thread of a process.
	detachLimit = 10 * time.Second // To detach.
)

// Trace interferes with system calls of the node's running process until the
// returned function is called. inject is an argument of strace's option
// --inject, such as "fdatasync:error=EIO". The returned function reports
// whether there was such a call. With paths, only calls on these files count.
// Every thread is traced when Trace returns. It ignores a process that has
// exited.
func (n *Node) Trace(
	ctx context.Context, inject string, paths ...string,
) (stop func() (hit bool, err error), err error) {
	p := n.current()
	if p == nil || isClosed(p.ended) {
		return func() (bool, error) { return false, nil }, nil
	}
	t := newTracer(ctx, p, filepath.Join(n.dir, "strace.log"), inject, paths...)
	if err := t.start(); err != nil {
		return nil, fmt.Errorf("trace %s: %w", n.Name, err)
	}
	if err := t.attach(ctx); err != nil {
		return nil, fmt.Errorf("trace %s: %w", n.Name, errors.Join(err, t.end()))
	}
	return t.stop, nil
}

// tracer is strace on one process.
type tracer struct {
	target *process
	log    string
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{} // Closed once it has exited.
	err    error         // Its result, once ended is closed.
}

// newTracer returns a tracer that is not started. It outlives ctx.
func newTracer(ctx context.Context, p *process, log, inject string, paths ...string) *tracer {
	calls, _, _ := strings.Cut(inject, ":")
	args := []string{"-f", "-q", "-o", log, "-e", "trace=" + calls, "-e", "inject=" + inject}
	for _, path := range paths {
		args = append(args, "-P", path)
	}
	args = append(args, "-p", strconv.Itoa(p.pid))
	cmd := exec.CommandContext(context.WithoutCancel(ctx), toolPath("strace"), args...)
	return &tracer{target: p, log: log, cmd: cmd, ended: make(chan struct{})}
}

// start starts strace with an empty log.
func (t *tracer) start() error {
	if err := os.WriteFile(t.log, nil, 0o600); err != nil {
		return err
	}
	t.cmd.Stderr = &t.output
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	began := make(chan error)
	go func() {
		runtime.LockOSThread() // The end of the thread counts as the death of the parent.
		defer runtime.UnlockOSThread()
		defer close(t.ended)
		err := t.cmd.Start()
		began <- err
		if err == nil {
			t.err = t.cmd.Wait()
		}
	}()
	return <-began
}

// attach waits until strace traces every thread of the process. A process that
// exits meanwhile is not an error.
func (t *tracer) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	err := poll(ctx, "strace to attach", func() bool {
		return isClosed(t.ended) || !alive(t.target.pid) || tracedBy(t.cmd.Process.Pid, t.target.pid)
	})
	if err == nil && isClosed(t.ended) {
		err = t.exitError()
	}
	return err
}

// tracedBy reports whether tracer traces every thread of a process.
func tracedBy(tracer, pid int) bool {
	states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	want := fmt.Appendf(nil, "\nTracerPid:\t%d\n", tracer)
	for _, path := range states {
		// An exited thread needs no tracer.
		if data, err := os.ReadFile(path); err == nil && !bytes.Contains(data, want) {
			return false
		}
	}
	return err == nil && len(states) > 0
}

// exitError returns why strace exited by itself; nil if its process has exited
// too.
func (t *tracer) exitError() error {
	if !alive(t.target.pid) {
		return nil
	}
	output := errors.New(strings.TrimSpace(t.output.String()))
	return fmt.Errorf("strace ended before its process: %w", errors.Join(t.err, output))
}

// stop detaches strace from the process, and reports whether it has interfered
// with a call.
func (t *tracer) stop() (hit bool, err error) {
	if isClosed(t.ended) {
		err = t.exitError()
	} else {
		err = t.end()
	}
	if err != nil {
		return false, err
	}
	data, err := os.ReadFile(t.log)
	return bytes.Contains(data, []byte("(INJECTED)")) || bytes.Contains(data, []byte("(DELAYED)")), err
}

// end ends strace.
func (t *tracer) end() error {
	if err := t.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-t.ended:
	case <-time.After(detachLimit):
		// strace waits for a process that is neither alive nor reaped. The
		// processes it still traces go on when it ends.
		if err := t.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-t.ended
	}
	return nil
}
