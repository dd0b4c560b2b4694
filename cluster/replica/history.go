package replica

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// contextEvery is after how many entries Advance checks its context.
const contextEvery = 256

// Entry returns the data of one committed entry, nil when it is not a command. The
// error is CodeNotFound when the entry is not committed yet, or older than the
// log.
func (r *Replica) Entry(index uint64) ([]byte, error) {
	first, err := r.Cache.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if index < first || index == 0 {
		oldest, err := r.oldest(first)
		if err != nil {
			return nil, err
		}
		return nil, errTooOld(index, oldest+1)
	}
	if newest := r.raft.CommitIndex(); index > newest {
		return nil, compute.Errorf(compute.CodeNotFound,
			"Entry %d does not exist yet: the newest is %d.", index, newest).Named("index_too_new")
	}
	var entry raft.Log
	if err := r.Cache.GetLog(index, &entry); err != nil {
		return nil, fmt.Errorf("read entry %d: %w", index, err)
	}
	if entry.Type != raft.LogCommand {
		return nil, nil
	}
	return entry.Data, nil
}

// Rebuild brings an empty state machine to the state after entry index, from the
// newest snapshot that is not newer and the log behind it. The replica itself
// keeps running. The error is CodeNotFound when snapshots and log do not reach
// back so far, and the message names the oldest index that they reach.
func (r *Replica) Rebuild(ctx context.Context, machine raft.FSM, index uint64) error {
	first, err := r.Cache.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	from, err := r.restoreBefore(machine, first, index)
	if err != nil {
		return err
	}
	return r.Advance(ctx, machine, from, index)
}

// Advance applies the entries behind from up to index to a state machine.
func (r *Replica) Advance(ctx context.Context, machine raft.FSM, from, index uint64) error {
	for i := from + 1; i <= index; i++ {
		if i%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		var entry raft.Log
		if err := r.Cache.GetLog(i, &entry); err != nil {
			return fmt.Errorf("read entry %d: %w", i, err)
		}
		switch entry.Type {
		case raft.LogCommand:
			machine.Apply(&entry)
		case raft.LogConfiguration:
			if store, ok := machine.(raft.ConfigurationStore); ok {
				store.StoreConfiguration(i, raft.DecodeConfiguration(entry.Data))
			}
		default: // Not for the state machine.
		}
	}
	return nil
}

// restoreBefore restores the newest snapshot up to index from which the log
// goes on without a gap, and returns its index; 0 when the log begins with
// the first entry.
func (r *Replica) restoreBefore(machine raft.FSM, first, index uint64) (uint64, error) {
	known, err := r.Snapshots.List() // The newest first.
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	for _, meta := range known {
		if meta.Index > index || meta.Index+1 < first {
			continue
		}
		_, content, err := r.Snapshots.Open(meta.ID)
		if err != nil {
			return 0, fmt.Errorf("open snapshot %d: %w", meta.Index, err)
		}
		return meta.Index, machine.Restore(content)
	}
	if first <= 1 {
		return 0, nil
	}
	oldest, err := r.oldest(first)
	if err != nil {
		return 0, err
	}
	return 0, errTooOld(index, oldest)
}

// oldest returns the oldest index whose state can be rebuilt, when the log
// begins at first.
func (r *Replica) oldest(first uint64) (uint64, error) {
	if first <= 1 {
		return first, nil
	}
	known, err := r.Snapshots.List()
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

// errTooOld refuses an index that snapshots and log no longer reach.
func errTooOld(index, oldest uint64) error {
	return compute.Errorf(compute.CodeNotFound,
		"Index %d is older than what this node keeps: the oldest that can be recomputed is %d.", index, oldest).
		Named("index_too_old")
}
