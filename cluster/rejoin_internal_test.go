package cluster

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/compute"
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

// TestCompareMarks is about which replica is the odd one out.
func TestCompareMarks(t *testing.T) {
	id := func(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: n}} }
	mark := func(index uint64, hash byte) StateMark { return StateMark{Index: index, Hash: compute.Hash{hash}} }
	for _, test := range []struct {
		name    string
		voters  int // The first ones.
		told    [][]StateMark
		index   uint64
		odd     []compute.NodeID
		unclear bool
	}{
		{"nothing told", 3, [][]StateMark{{}, {}, {}}, 0, nil, false},
		{"too few have one", 3, [][]StateMark{{mark(4, 1)}, {}, {}}, 0, nil, false},
		{"all agree", 3, [][]StateMark{{mark(4, 1)}, {mark(4, 1)}, {mark(4, 1)}}, 4, nil, false},
		{"one is behind", 3, [][]StateMark{{mark(4, 1), mark(8, 2)}, {mark(4, 1), mark(8, 2)}, {mark(4, 1)}}, 8, nil, false},
		{"one differs", 3, [][]StateMark{{mark(4, 1)}, {mark(4, 2)}, {mark(4, 1)}}, 4, []compute.NodeID{id(2)}, false},
		{
			"the newest counts", 3,
			[][]StateMark{{mark(4, 1), mark(8, 3)}, {mark(4, 1), mark(8, 2)}, {mark(8, 3)}},
			8,
			[]compute.NodeID{id(2)},
			false,
		},
		{"one of two that answer differs", 3, [][]StateMark{{mark(4, 1)}, {mark(4, 2)}}, 4, nil, true},
		{"three states", 3, [][]StateMark{{mark(4, 1)}, {mark(4, 2)}, {mark(4, 3)}}, 4, nil, true},
		{"two and two", 4, [][]StateMark{{mark(4, 1)}, {mark(4, 2)}, {mark(4, 1)}, {mark(4, 2)}}, 4, nil, true},
		{"a standby differs", 1, [][]StateMark{{mark(4, 1)}, {mark(4, 2)}}, 4, []compute.NodeID{id(2)}, false},
		{
			"standbys are no majority", 3,
			[][]StateMark{{mark(4, 1)}, {mark(4, 1)}, {}, {mark(4, 2)}, {mark(4, 2)}},
			4,
			[]compute.NodeID{id(4), id(5)},
			false,
		},
	} {
		told, voters := map[compute.NodeID]marks{}, map[compute.NodeID]bool{}
		for i, m := range test.told {
			told[id(byte(i+1))] = marks{Marks: m}
		}
		for i := range test.voters {
			voters[id(byte(i+1))] = true
		}
		got := compareMarks(told, voters)
		slices.SortFunc(got.odd, func(a, b compute.NodeID) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
		if got.right.Index != test.index || !slices.Equal(got.odd, test.odd) || got.unclear != test.unclear {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}
