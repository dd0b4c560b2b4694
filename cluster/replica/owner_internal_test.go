package replica

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/compute"
)

// TestTakeOverComparesWithTheSnapshot takes over logs with entries 10 to 14 of
// term 3: one that a crash left before a snapshot from the leader had cleared it
// is emptied.
func TestTakeOverComparesWithTheSnapshot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		newest *raft.SnapshotMeta
		last   uint64
	}{
		{"no snapshot", nil, 14},
		{"its own", &raft.SnapshotMeta{Index: 12, Term: 3}, 14},
		{"right before it", &raft.SnapshotMeta{Index: 9, Term: 2}, 14},
		{"the leader's", &raft.SnapshotMeta{Index: 12, Term: 4}, 0},
		{"the leader's, of the end", &raft.SnapshotMeta{Index: 14, Term: 4}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, covered := t.TempDir(), uint64(0)
			if tt.newest != nil {
				covered = tt.newest.Index
			}
			fatal := func(err error) { t.Error(err) }
			for start := range 2 { // The second start finds what the first left.
				log, err := disk.Open(dir, covered, fatal)
				if err != nil {
					t.Fatal(err)
				}
				if err := log.SetUint64([]byte(disk.KeyCurrentTerm), 4); err != nil {
					t.Fatal(err)
				}
				if start == 0 {
					err = log.StoreLogs(entriesOf(10, 3, 3, 3, 3, 3))
				}
				if err == nil {
					err = takeOver(log, tt.newest, compute.UUID{1}, compute.NodeID{UUID: compute.UUID{2}})
				}
				last, lastErr := log.LastIndex()
				if err := errors.Join(err, lastErr, log.Close()); err != nil || last != tt.last {
					t.Errorf("the log ends at %d, want %d; %v", last, tt.last, err)
				}
			}
		})
	}
}

// entriesOf returns entries from first on, of these terms.
func entriesOf(first uint64, terms ...uint64) []*raft.Log {
	var out []*raft.Log
	for i, term := range terms {
		out = append(out, &raft.Log{Index: first + uint64(i), Term: term})
	}
	return out
}
