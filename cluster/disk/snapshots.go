package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

	"berth/cluster/file"
)

// RemoveUnfinishedSnapshots deletes what crashes in the middle of a snapshot
// left; the library never does.
func RemoveUnfinishedSnapshots(dir string) error {
	dir = filepath.Join(dir, "snapshots")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	return file.SyncDir(dir)
}

// Covered returns the entry at which the newest readable snapshot ends, 0 when
// there is no snapshot.
func Covered(snapshots raft.SnapshotStore) (uint64, error) {
	list, err := snapshots.List()
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	for _, meta := range list {
		_, r, err := snapshots.Open(meta.ID) // Checks its CRC.
		if err != nil {
			continue
		}
		if err := r.Close(); err != nil {
			return 0, fmt.Errorf("close snapshot: %w", err)
		}
		return meta.Index, nil
	}
	if len(list) > 0 {
		return 0, fmt.Errorf("%w: none of %d snapshots can be read", ErrCorrupt, len(list))
	}
	return 0, nil
}

// CheckGap refuses a replica whose newest readable snapshot, which ends at
// covered, ends before its log begins. Raft would panic on it, or replay from
// the wrong entry.
func CheckGap(logs raft.LogStore, covered uint64) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	if first > covered+1 {
		return fmt.Errorf("%w: the newest readable snapshot ends at entry %d, the log begins at %d",
			ErrCorrupt, covered, first)
	}
	return nil
}
