package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/compute"
)

// TestEmptyReplicaVotesInNoTermBefore looks at what a server that rejoins begins
// with: in the terms in which it may have voted it votes no more.
func TestEmptyReplicaVotesInNoTermBefore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	for range 2 { // It can be made again.
		if err := makeEmptyReplica(dir, []byte("owner"), 7); err != nil {
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

// TestVerdictOf is about a server in a later epoch: its word counts when those in
// this one are too few.
func TestVerdictOf(t *testing.T) {
	id := func(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{n}} }
	here := func(n byte, leader byte) readmissionReply {
		return readmissionReply{id(n), status{Leader: id(leader)}, nil}
	}
	away := func(n byte) readmissionReply { return readmissionReply{id(n), status{}, errors.New("no route")} }
	later := func(n byte) readmissionReply { return readmissionReply{id(n), status{}, elsewhereError(3)} }
	for _, test := range []struct {
		name     string
		replies  []readmissionReply
		outlived bool
	}{
		{"nobody answers", []readmissionReply{away(1), away(2)}, false},
		{"a stray one, the others have a leader", []readmissionReply{later(1), here(2, 2), away(3)}, false},
		{"a stray one, the others can elect", []readmissionReply{later(1), here(2, 0), here(3, 0), here(4, 0)}, false},
		{"the restored one is up first", []readmissionReply{later(1), away(2)}, true},
		{"one is left behind like this one", []readmissionReply{later(1), here(2, 0)}, true},
		{"most are there", []readmissionReply{later(1), later(2), here(3, 0), away(4)}, true},
	} {
		if err := verdictOf(test.replies, 2); errors.Is(err, ErrOutlived) != test.outlived {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := verdictOf([]readmissionReply{{id(1), status{}, errRemoved()}, here(2, 2)}, 2); !IsRemoved(err) {
		t.Errorf("of a removed one: %v", err)
	}
}

// TestQuarantineIsBounded fills the quarantine.
func TestQuarantineIsBounded(t *testing.T) {
	f, err := openFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	aside := func(bytes int, damage error) string {
		t.Helper()
		at = at.Add(time.Minute)
		if err := os.WriteFile(f.path(raftDir, disk.FileName), make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := f.setAside(at, damage)
		if err := errors.Join(err, os.Mkdir(f.path(raftDir), dirMode)); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(dir)
	}
	left := func() (left []string) {
		entries, err := os.ReadDir(f.path(quarantineDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, f.path(quarantineDir, e.Name()))
		}
		return left
	}
	restored := aside(1000, nil)
	var all []string
	for range 5 {
		all = append(all, aside(1000, errors.New("damaged")))
	}
	if _, err := f.asideDir(at.Add(time.Second), errors.New("a crash came")); err != nil {
		t.Fatal(err)
	}
	removed, err := f.pruneDamaged(1 << 30)
	if want := append([]string{restored}, all[2:]...); err != nil || len(removed) != 3 || !slices.Equal(left(), want) {
		t.Errorf("by number: left %v, removed %v, %v", left(), removed, err)
	}
	if _, err := f.pruneDamaged(2100); err != nil || !slices.Equal(left(), append([]string{restored}, all[3:]...)) {
		t.Errorf("by size: left %v, %v", left(), err)
	}
	if _, err := f.pruneDamaged(0); err != nil || !slices.Equal(left(), []string{restored, all[4]}) {
		t.Errorf("the newest stays: left %v, %v", left(), err)
	}
}

// TestMeasuredClocks compares clocks by a call that takes some time.
func TestMeasuredClocks(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct{ ahead, took, sent, want time.Duration }{
		{0, 2 * time.Second, time.Second, 0},
		{0, 2 * time.Second, 2 * time.Second, 0}, // All of it was on the way back.
		{time.Hour, 2 * time.Second, time.Second, time.Hour},
		{-time.Hour, 2 * time.Second, time.Second, -time.Hour},
	} {
		there := now.Add(-test.ahead - test.sent)
		if got := measured(now, there, test.took); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
	var s skew
	for i, step := range []struct {
		ahead    time.Duration
		at       time.Duration
		off, say bool
	}{
		{time.Second, 0, false, false}, {time.Hour, 0, true, true}, {time.Hour, time.Minute, true, false},
		{time.Hour, 11 * time.Minute, true, true}, {0, 12 * time.Minute, false, true}, {0, 13 * time.Minute, false, false},
	} {
		if off, say := s.note(step.ahead, now.Add(step.at)); off != step.off || say != step.say {
			t.Errorf("step %d: off %t, said %t", i, off, say)
		}
	}
}
