package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// TestCheckpointsDependOnEntriesOnly applies the same entries in batches of
// different sizes.
func TestCheckpointsDependOnEntriesOnly(t *testing.T) {
	var entries []*raft.Log
	for i := range uint64(6000) {
		clock := command.Clock{At: compute.Instant(i), Term: 1}
		frame, err := command.Encode(clock)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, &raft.Log{Index: i + 1, Type: raft.LogCommand, Data: frame})
	}
	var all [][]fsm.Checkpoint
	for _, size := range []int{1, 100, 1000, 6000} {
		m := fsm.New()
		for batch := range slices.Chunk(entries, size) {
			m.ApplyBatch(batch)
		}
		all = append(all, m.Checkpoints())
	}
	for i, marks := range all {
		if len(marks) == 0 || len(marks) > 16 || !slices.Equal(marks, all[0]) {
			t.Errorf("machine %d: %s, the first one: %s", i, fmt.Sprint(marks), fmt.Sprint(all[0]))
		}
	}
	if last := all[0][len(all[0])-1]; last.Hash == all[0][0].Hash || 6000-last.Index > 1000 {
		t.Errorf("the newest mark is %v, the oldest %v", last, all[0][0])
	}
}
