package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth/compute"
	"berth/node/executor"
)

// Down ends the cluster of dir and waits until nothing of it is left: the
// process that runs it first, which ends its nodes, then whatever a crash left
// behind. It reports whether anything was running.
func Down(ctx context.Context, dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(dir); err != nil {
		return false, fmt.Errorf("no cluster: %w", err)
	}
	running, err := endHolder(ctx, dir)
	if err != nil {
		return running, err
	}
	for _, verb := range []string{"node", "supervise"} {
		some, err := endAll(ctx, dir, verb)
		if err != nil {
			return running, err
		}
		running = running || some
	}
	return running, errors.Join(reap(dir), removeState(dir))
}

// reap removes what nodes that were killed have left in the kernel. Their
// processes and supervisors have ended.
func reap(dir string) error {
	if os.Geteuid() != 0 {
		return nil // Then they made nothing there.
	}
	records, err := filepath.Glob(filepath.Join(dir, "*", dataDir, recordFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range records {
		var record struct {
			NodeID compute.NodeID `json:"node_id"`
		}
		if err := readJSON(path, &record); err != nil || record.NodeID.IsZero() {
			continue // A node that never came to life.
		}
		errs = append(errs, executor.Reap(record.NodeID))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what nodes left: %w", err)
	}
	return nil
}

// endHolder ends the process that runs the cluster of dir.
func endHolder(ctx context.Context, dir string) (bool, error) {
	pid, err := holder(dir)
	if err != nil || pid == 0 {
		return false, err
	}
	handle, err := os.FindProcess(pid)
	if err != nil {
		return false, fmt.Errorf("find process %d: %w", pid, err)
	}
	defer release(handle)
	// A process that was killed lets go of its pipe to the guard a moment before
	// it lets go of the lock: it is done, and still the holder.
	if err := handle.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("end process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, holderGrace)
	defer cancel()
	free := poll(ctx, func() bool {
		pid, err = holder(dir)
		return err != nil || pid == 0
	})
	if !free {
		return true, fmt.Errorf("process %d does not end", pid)
	}
	return true, err
}

// endAll ends all processes of the cluster in dir with the verb.
func endAll(ctx context.Context, dir, verb string) (bool, error) {
	found, err := members(dir, verb)
	if err != nil || len(found) == 0 {
		return false, err
	}
	defer func() {
		for _, m := range found {
			release(m.handle)
		}
	}()
	return true, end(ctx, found, stopGrace)
}

// removeState removes cluster.json: what it tells is over.
func removeState(dir string) error {
	err := os.Remove(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
