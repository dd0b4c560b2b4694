package replica

import (
	"bytes"
	"slices"
	"testing"

	"berth/compute"
)

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
		slices.SortFunc(got.Diverged, func(a, b compute.NodeID) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
		if got.right.Index != test.index || !slices.Equal(got.Diverged, test.odd) || got.Unclear != test.unclear {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}
