package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"berth/loop"
)

// ExitRemoved is the exit code of a node that the cluster has removed.
const ExitRemoved = 3

// Limits of one node process.
const (
	firstRestart = 500 * time.Millisecond
	maxRestart   = 10 * time.Second
	longLife     = time.Minute // A process that ran for this long resets the backoff.
	promoteAfter = "1s"        // On one machine a new server may vote soon.
	maxLogBytes  = 32 << 20    // The size at which the log becomes node.log.old.
	logTail      = 4 << 10     // The part shown if a node does not come up.
)

// keepRunning runs the node's process until ctx ends. With Restart it restarts
// a process that exits, unless the cluster has removed the node. It returns
// when no process is left.
func (c *Cluster) keepRunning(ctx context.Context, n plannedNode) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstRestart, maxRestart
	for {
		began := c.cfg.Now()
		err := c.execute(ctx, n)
		c.setPID(n.Name, 0)
		if ctx.Err() != nil {
			return
		}
		lived := c.cfg.Now().Sub(began)
		if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == ExitRemoved {
			c.noteRemoved(n.Name)
			return
		}
		c.cfg.Logger.Warn("node ended", "node", n.Name, "took", lived, "err", err)
		c.noteEnd(n.Name)
		if !c.cfg.Restart {
			return
		}
		if lived > longLife {
			pause.Reset()
		}
		if !loop.Sleep(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// execute runs the node's process once. When ctx ends, it sends SIGTERM, and
// SIGKILL if the process does not exit.
//
// The kernel also ends the process when the thread that started it ends, so the
// goroutine keeps its thread.
func (c *Cluster) execute(ctx context.Context, n plannedNode) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	log, err := os.OpenFile(c.plan.path(n.Name, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.cfg.Binary, "node",
		"--config", c.plan.path(n.Name, configFile), "--promote-after", promoteAfter)
	cmd.Dir = c.plan.path(n.Name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	c.setPID(n.Name, cmd.Process.Pid)
	return cmd.Wait()
}

// environment returns the variables of this process except Berth's own, because
// the nodes of a cluster read their configuration only from files.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, ownPrefix) {
			env = append(env, v)
		}
	}
	return env
}

// ownPrefix begins the names of Berth's own variables.
const ownPrefix = "BERTH_"

// withheld returns the names of the variables that would configure a node if it got them.
// Those of clients and of tests are no surprise.
func withheld(env []string) []string {
	var names []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, ownPrefix) && !strings.HasPrefix(name, "BERTH_TEST_") &&
			name != "BERTH_ADDR" && name != "BERTH_TOKEN" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// trimLog rotates a log that has grown too long. The node continues to write to
// the same file, so trimLog copies its text and truncates it.
func trimLog(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() < maxLogBytes {
		return nil
	}
	from, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	defer from.Close()
	to, err := os.OpenFile(path+".old", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), from.Truncate(0))
}

// tailLog returns the end of the node's log.
func (p *plan) tailLog(node string) string {
	f, err := os.Open(filepath.Clean(p.path(node, logFile)))
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return ""
	}
	return string(data)
}
