package world

import (
	"bytes"
	"context"
	"encoding/json"
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

	"berth/compute"
	"berth/node/executor/prepare"
)

const (
	pollEvery = 10 * time.Millisecond
	endLimit  = 30 * time.Second
)

// process is one berth process.
type process struct {
	pid   int
	ended chan struct{} // Closed once it has exited.
	err   error         // Its result, once ended is closed.
}

// start starts the program in a network namespace and appends its output to a
// file. The process ends with this one.
//
// The kernel sends the parent-death signal when the starting thread ends, so
// the goroutine locks a thread for this process alone.
func start(ctx context.Context, netns, log string, env []string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // kill ends it.
	p := &process{ended: make(chan struct{})}
	began := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		args := append([]string{"--net=/run/netns/" + netns, "--"}, argv...)
		cmd := exec.CommandContext(ctx, toolPath("nsenter"), args...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(environment(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			began <- err
			return
		}
		p.pid = cmd.Process.Pid
		began <- nil
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if err := <-began; err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return p, nil
}

// environment returns the variables of this process except Berth's own.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BERTH_") {
			env = append(env, v)
		}
	}
	return env
}

// signal sends a signal to the process if it has not exited.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// kill kills the process and waits until it has exited.
func (p *process) kill(ctx context.Context) error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.wait(ctx)
}

// wait waits until the process has exited.
func (p *process) wait(ctx context.Context) error {
	timer := time.NewTimer(endLimit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d does not end", p.pid)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// owned returns the processes, except this one, whose arguments name a file
// below dir. verb selects those that execute one of berth's commands; ""
// selects all.
func owned(dir, verb string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
		if len(args) < 3 || verb != "" && args[1] != verb || verb == "" && args[1] != "node" && args[1] != "supervise" {
			continue
		}
		for _, arg := range args[2:] {
			if strings.HasPrefix(arg, dir+string(filepath.Separator)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// endProcesses kills the nodes and supervisors of the world in dir.
func endProcesses(ctx context.Context, dir string) error {
	for range 3 { // A node may start a supervisor while it is killed.
		pids, err := owned(dir, "")
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := killAll(ctx, pids); err != nil {
			return err
		}
	}
	return nil
}

// killAll kills the processes and waits until they have exited.
func killAll(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	return poll(ctx, "the end of processes", func() bool {
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
}

// reapNodes removes the cgroups and firewall rules of the nodes of the world in
// dir. None of their processes may be left.
func reapNodes(dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, "n*", "data", "node.json"))
	if err != nil {
		return err
	}
	copies, err := filepath.Glob(filepath.Join(dir, "n*", "node.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range append(records, copies...) {
		var record struct {
			NodeID compute.NodeID `json:"node_id"`
		}
		data, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(data, &record) == nil && !record.NodeID.IsZero() {
			errs = append(errs, prepare.Reap(record.NodeID))
		}
	}
	return errors.Join(errs...)
}

// poll calls done at intervals until it returns true or ctx ends.
func poll(ctx context.Context, what string, done func() bool) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
	return nil
}
