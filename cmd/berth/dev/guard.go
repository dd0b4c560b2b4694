package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// guard is the process that ends the cluster when this one is killed. It has
// the reading end of a pipe whose writing end only this process has.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts the guard of the cluster of dir.
func startGuard(ctx context.Context, binary, dir string) (*guard, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, "dev", "guard", "--dir", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = dir
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// release ends the guard: there is nothing left to guard.
func (g *guard) release() error {
	_, err := g.pipe.Write([]byte{1})
	return errors.Join(err, g.pipe.Close(), g.cmd.Wait())
}

// Guard waits until the process that started it has ended, which it notices by
// the end of in, and then ends the cluster of dir. A byte on in ends the wait
// without that.
func Guard(ctx context.Context, in io.Reader, dir string) error {
	released, err := io.ReadFull(in, make([]byte, 1))
	if released == 1 {
		return nil
	}
	if err != io.EOF { //nolint:errorlint // ReadFull returns it bare.
		return fmt.Errorf("guard %s: %w", dir, err)
	}
	_, err = Down(ctx, dir)
	return err
}

// Program returns the path of the program that executes now, for the processes
// of a cluster.
func Program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	return path, nil
}
