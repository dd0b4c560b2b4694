package cluster

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
)

// TestEmptyReplicaVotesInNoTermBefore looks at what a server that rejoins begins
// with: in the terms in which it may have voted it votes no more.
func TestEmptyReplicaVotesInNoTermBefore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	for range 2 { // It can be made again.
		if err := makeEmptyReplica(dir, 7); err != nil {
			t.Fatal(err)
		}
	}
	s, err := disk.Open(dir, 0, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	term, err := s.GetUint64([]byte("CurrentTerm"))
	if err != nil || term != 7 {
		t.Errorf("it is in term %d, %v", term, err)
	}
	voted, err := s.GetUint64([]byte("LastVoteTerm"))
	if err != nil || voted != 7 {
		t.Errorf("it voted in term %d, %v", voted, err)
	}
	if candidate, err := s.Get([]byte("LastVoteCand")); err != nil || len(candidate) == 0 {
		t.Errorf("it voted for %q, %v", candidate, err)
	}
	if last, err := s.LastIndex(); err != nil || last != 0 {
		t.Errorf("it ends at entry %d, %v", last, err)
	}
	if has, err := raft.HasExistingState(s, s, raft.NewInmemSnapshotStore()); err != nil || !has {
		t.Errorf("a cluster could be made on it: %v, %v", has, err)
	}
}

// TestWhoCountsForARejoin is about the voters beside a damaged one.
func TestWhoCountsForARejoin(t *testing.T) {
	for _, test := range []struct {
		voters, current int
		may             bool
	}{
		{1, 0, false}, // It is the only one.
		{2, 1, false}, // What it acknowledged alone with the other counts.
		{3, 1, false},
		{3, 2, true},
		{4, 2, false},
		{4, 3, true},
		{5, 2, false}, // Two others are away, or rejoin too.
		{5, 3, true},  // One is.
		{5, 4, true},
	} {
		if err := refuseReadmission(test.voters, test.current, nil); (err == nil) != test.may {
			t.Errorf("%d of %d voters are intact: %v", test.current, test.voters, err)
		}
	}
}
