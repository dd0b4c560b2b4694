package fsm

import (
	"errors"
	"testing"

	"berth/compute"
	"berth/fsm/store"
)

// TestRecountFindsFlippedBits flips bits of records in memory: in a decoded
// one, in a packed one, and in a sealed block of a ledger. The hash that is
// maintained on write detects none of them.
func TestRecountFindsFlippedBits(t *testing.T) {
	for _, test := range []struct {
		name string
		flip func(s *state)
	}{
		{"a live record", func(s *state) {
			for e := range s.view.executions.Hot() {
				e.Priority ^= 1
				return
			}
		}},
		{"a final record", func(s *state) {
			s.view.executions.Scan(nil, func(_ compute.ExecutionID, _ *compute.Execution, _, packed []byte) bool {
				return !flipped(packed)
			})
		}},
		{"a ledger", func(s *state) {
			s.view.ledger.Sealed.Scan(make([]byte, numberKeyWidth), func(_, block []byte) bool { return !flipped(block) })
		}},
		{"an organization", func(s *state) {
			for o := range s.view.orgs.Values() {
				o.Slug += "x"
				return
			}
		}},
		{"the hash itself", func(s *state) { s.view.nodes.Load(nil, &store.Sum{2: 1 << 40}) }},
	} {
		f := newFSM(longHistory(t))
		f.publish()
		total := 0
		throttle := func(bytes int) error {
			total += bytes
			return nil
		}
		if err := f.Recount(throttle); err != nil || total < 1000 {
			t.Fatalf("%s: before: %v after %d bytes", test.name, err, total)
		}
		kept := f.View().Hash()
		test.flip(f.state)
		f.publish()
		if test.name != "the hash itself" && f.View().Hash() != kept {
			t.Errorf("%s: the hash is another one: it needs no recount", test.name)
		}
		if err := f.Recount(throttle); !errors.Is(err, ErrRecount) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// flipped flips a bit of a row, if there is one.
func flipped(row []byte) bool {
	if len(row) == 0 {
		return false
	}
	row[len(row)-1] ^= 4
	return true
}
