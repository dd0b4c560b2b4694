package cluster

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// contextEvery is after how many entries Rebuild looks whether it should go on.
const contextEvery = 256

// Entry returns the data of one committed entry, nil for one that is no
// command. It is CodeNotFound when the entry is not committed yet, or older
// than the log.
func (c *Cluster) Entry(index uint64) ([]byte, error) {
	first, err := c.logs.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if index < first || index == 0 {
		oldest, err := c.oldest(first)
		if err != nil {
			return nil, err
		}
		return nil, errTooOld(index, oldest+1)
	}
	if newest := c.raft.CommitIndex(); index > newest {
		return nil, compute.Errorf(compute.CodeNotFound,
			"Entry %d does not exist yet: the newest is %d.", index, newest).Named("index_too_new")
	}
	var entry raft.Log
	if err := c.logs.GetLog(index, &entry); err != nil {
		return nil, fmt.Errorf("read entry %d: %w", index, err)
	}
	if entry.Type != raft.LogCommand {
		return nil, nil
	}
	return entry.Data, nil
}

// Rebuild brings an empty state machine to what the state was after entry
// index: from the newest snapshot that is not newer, and the log behind it. The
// replica itself goes on meanwhile. It is CodeNotFound when neither reaches so
// far back, and the message names the oldest index that they do.
func (c *Cluster) Rebuild(ctx context.Context, machine raft.FSM, index uint64) error {
	first, err := c.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	from, err := c.restoreBefore(machine, first, index)
	if err != nil {
		return err
	}
	return c.Advance(ctx, machine, from, index)
}

// Advance applies the entries behind from up to index to a state machine.
func (c *Cluster) Advance(ctx context.Context, machine raft.FSM, from, index uint64) error {
	for i := from + 1; i <= index; i++ {
		if i%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		var entry raft.Log
		if err := c.logs.GetLog(i, &entry); err != nil {
			return fmt.Errorf("read entry %d: %w", i, err)
		}
		switch entry.Type {
		case raft.LogCommand:
			machine.Apply(&entry)
		case raft.LogConfiguration:
			if store, ok := machine.(raft.ConfigurationStore); ok {
				store.StoreConfiguration(i, raft.DecodeConfiguration(entry.Data))
			}
		default: // What the state machine never sees.
		}
	}
	return nil
}

// restoreBefore restores the newest snapshot up to index from which the log
// goes on without a gap, and returns its index; 0 when the log begins with
// the first entry.
func (c *Cluster) restoreBefore(machine raft.FSM, first, index uint64) (uint64, error) {
	known, err := c.snapshots.List() // The newest first.
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	for _, meta := range known {
		if meta.Index > index || meta.Index+1 < first {
			continue
		}
		_, content, err := c.snapshots.Open(meta.ID)
		if err != nil {
			return 0, fmt.Errorf("open snapshot %d: %w", meta.Index, err)
		}
		return meta.Index, machine.Restore(content)
	}
	if first <= 1 {
		return 0, nil
	}
	oldest, err := c.oldest(first)
	if err != nil {
		return 0, err
	}
	return 0, errTooOld(index, oldest)
}

// oldest returns the oldest index whose state can be rebuilt, when the log
// begins at first.
func (c *Cluster) oldest(first uint64) (uint64, error) {
	if first <= 1 {
		return first, nil
	}
	known, err := c.snapshots.List()
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	oldest := first
	for _, meta := range known {
		if meta.Index+1 >= first {
			oldest = meta.Index // They come newest first.
		}
	}
	return oldest, nil
}

// errTooOld is the answer for an index that snapshots and log no longer reach.
func errTooOld(index, oldest uint64) error {
	return compute.Errorf(compute.CodeNotFound,
		"Index %d is older than what this node keeps: the oldest that can be recomputed is %d.", index, oldest).
		Named("index_too_old")
}
