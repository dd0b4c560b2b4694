package world

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mustShell returns a node whose process is a shell with a script.
func mustShell(t *testing.T, script string) *Node {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if err := p.kill(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &Node{Name: "n1", dir: dir, process: p}
}

// TestTrace checks that a disk fault counts only if it interfered with a call,
// and that a missing tracer is an error.
func TestTrace(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root and strace")
	}
	const late = "fdatasync,fsync:delay_exit=1000"
	syncing, idle := mustShell(t, "while :; do sync -d .; sleep 0.01; done"), mustShell(t, "exec sleep 60")
	for n, want := range map[*Node]bool{syncing: true, idle: false} {
		stop, err := n.Trace(t.Context(), late)
		if err != nil {
			t.Fatal(err)
		}
		err = poll(t.Context(), "a sync", func() bool {
			log, err := os.ReadFile(filepath.Join(n.dir, "strace.log"))
			return err != nil || !want || bytes.Contains(log, []byte(" (DELAYED)"))
		})
		if hit, stopped := stop(); err != nil || stopped != nil || hit != want {
			t.Errorf("hit %v, want %v: %v, %v", hit, want, err, stopped)
		}
	}
	// The trace covers only the other file of the two.
	stop, err := syncing.Trace(t.Context(), late, filepath.Join(syncing.dir, "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(100 * time.Millisecond)
	if hit, err := stop(); err != nil || hit {
		t.Errorf("calls on another file: hit %v, %v", hit, err)
	}
	if _, err := idle.Trace(t.Context(), "locusts:error=EIO"); err == nil || !strings.Contains(err.Error(), "locusts") {
		t.Errorf("got %v", err)
	}
	strays := newTracer(t.Context(), idle.process, filepath.Join(idle.dir, "strace.log"), late)
	if err := errors.Join(strays.start(), strays.attach(t.Context()), strays.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	<-strays.ended
	if _, err := strays.stop(); err == nil {
		t.Error("a tracer that exits before its process is no error")
	}
}
