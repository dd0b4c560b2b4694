package replica

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/compute"
)

// Held is one entry of the log as a stopped server has it.
type Held struct {
	Data    []byte // nil where its log does not have the entry.
	Last    uint64 // Index of its newest entry.
	Covered uint64 // Last entry in its snapshot: all up to it are applied.
}

// Entry returns a command entry as the replica has it. It changes nothing.
func (s *Stopped) Entry(index uint64) (Held, error) {
	st, err := s.openStores(disk.OpenToRead)
	if err != nil {
		return Held{}, err
	}
	defer st.log.Close()
	var held Held
	if held.Covered, _, err = st.snapshots.Covered(); err != nil {
		return Held{}, err
	}
	if held.Last, err = st.log.LastIndex(); err != nil {
		return Held{}, fmt.Errorf("read log: %w", err)
	}
	held.Last = max(held.Last, held.Covered)
	var entry raft.Log
	switch err := st.log.GetLog(index, &entry); {
	case errors.Is(err, raft.ErrLogNotFound):
		return held, nil
	case err != nil:
		return held, fmt.Errorf("read entry: %w", err)
	case entry.Type != raft.LogCommand:
		return held, compute.Errorf(compute.CodeInvalid, "Entry %d holds no commands of Berth.", index)
	}
	held.Data = entry.Data
	return held, nil
}
