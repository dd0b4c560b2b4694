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

// guard is the process that ends the cluster if this process is killed. It has
// the read end of a pipe, and only this process has the write end.
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

// release ends the guard and leaves the cluster alone.
func (g *guard) release() error {
	_, err := g.pipe.Write([]byte{1})
	return errors.Join(err, g.pipe.Close(), g.cmd.Wait())
}

// Guard ends the cluster of dir once the process that started the guard has
// ended, which closes in. After a byte on in it returns and leaves the cluster
// alone.
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

// Program returns the path of the running program, for the processes of a
// cluster.
func Program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	return path, nil
}
