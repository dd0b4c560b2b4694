//go:build !verifyleader

package cluster_test

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// TestControlReadsAreStale holds that TestReadsAreNotStale can fail: with
// raft's VerifyLeader in place of the quorum term check, the same test has to
// find a stale read.
func TestControlReadsAreStale(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles this package again")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-count=1", "-timeout=5m",
		"-tags", "verifyleader", "-run", "^TestReadsAreNotStale$", ".")
	// The peers are processes of their own: all of them end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Fatalf("the control did not fail: %v\n%s", err, out)
	}
	found := regexp.MustCompile(`[0-9]+ reads, [1-9][0-9]* stale, [0-9]+ refused`).Find(out)
	if found == nil {
		t.Fatalf("the control failed without a stale read: %v\n%s", err, out)
	}
	t.Logf("with VerifyLeader: %s", found)
}
