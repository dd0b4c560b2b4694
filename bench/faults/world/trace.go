package world

import (
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

// Trace interferes with system calls of the node's living process, as strace's
// option --inject says, such as "fdatasync:error=EIO", until the function
// returned is called.
func (n *Node) Trace(ctx context.Context, inject string) (stop func() error, err error) {
	p := n.current()
	if p == nil || isClosed(p.ended) {
		return func() error { return nil }, nil
	}
	calls, _, _ := strings.Cut(inject, ":")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), toolPath("strace"),
		"-f", "-q", "-o", filepath.Join(n.dir, "strace.log"),
		"-e", "trace="+calls, "-e", "inject="+inject, "-p", strconv.Itoa(p.pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	began, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Its end would be the death of the parent.
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		began <- err
		if err == nil {
			_ = cmd.Wait() // It ends by the signal below, or with its process.
		}
	}()
	if err := <-began; err != nil {
		return nil, fmt.Errorf("trace %s: %w", n.Name, err)
	}
	return func() error {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-ended:
		case <-time.After(letGoLimit):
			// It waits for a process that is neither there nor gone; those that it
			// still holds go on when it ends.
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			<-ended
		}
		return nil
	}, nil
}

// letGoLimit is how long strace may take to let go of a process.
const letGoLimit = 10 * time.Second
