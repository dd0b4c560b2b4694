package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"berth/compute"
)

// TestRebuildReachesAsFarAsTheDisk checks that a past state is rebuilt from the
// log, or from a snapshot and the log after it. Anything older is refused with
// the oldest available index.
func TestRebuildReachesAsFarAsTheDisk(t *testing.T) {
	f := mustFleet(t, 1, nil)
	p := f.peers[0]
	var indexes []uint64
	for i := range 5 {
		_, index := p.mustPropose(t, toyCommand{Op: fmt.Sprint("op", i), Key: "k", Value: int64(i)})
		indexes = append(indexes, index)
	}
	rebuilt := func(index uint64) (int64, error) {
		machine := newToyFSM()
		err := p.Replica().Rebuild(t.Context(), machine, index)
		return machine.get("k"), err
	}
	for i, index := range indexes {
		if got, err := rebuilt(index); err != nil || got != int64(i) {
			t.Errorf("at %d it is %d, %v; want %d", index, got, err, i)
		}
	}
	if data, err := p.Replica().Entry(indexes[3]); err != nil || !strings.Contains(string(data), "op3") {
		t.Errorf("entry %d is %q, %v", indexes[3], data, err)
	}
	if err := p.Compact(); err != nil {
		t.Fatal(err)
	}
	_, newest := p.mustPropose(t, toyCommand{Op: "last", Key: "k", Value: 9})
	if got, err := rebuilt(newest); err != nil || got != 9 {
		t.Errorf("from a snapshot it is %d, %v", got, err)
	}
	_, err := rebuilt(indexes[0])
	if compute.CodeOf(err) != compute.CodeNotFound || !strings.Contains(err.Error(), "the oldest that can be recomputed is") {
		t.Errorf("of what is gone: %v", err)
	}
	if _, err := p.Replica().Entry(indexes[0]); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("an entry that is gone: %v", err)
	}
	if _, err := p.Replica().Entry(newest + 100); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("an entry that does not exist: %v", err)
	}
}
