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
	"berth/node/executor/prepare"
)

// Down ends the cluster of dir and waits until no process of it is left. It
// first ends the process that runs the cluster, which ends its nodes, and then
// the processes that a crash left. It reports whether any process was running.
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

// reap removes the kernel objects of killed nodes. Their processes and
// supervisors have ended.
func reap(dir string) error {
	if os.Geteuid() != 0 {
		return nil // Without root nodes create none.
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
			continue // The node never started completely.
		}
		errs = append(errs, prepare.Reap(record.NodeID))
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
	// A killed process closes its pipe to the guard a moment before it releases
	// the lock. It has ended then, and is still the holder.
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

// removeState removes cluster.json, because the cluster has ended.
func removeState(dir string) error {
	err := os.Remove(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
