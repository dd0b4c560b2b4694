package slot

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth/node/executor/sandbox"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestSlotsAreTakenOnce(t *testing.T) {
	d := In(t.TempDir())
	first, second := must[*Slot](t)(d.Take()), must[*Slot](t)(d.Take())
	defer second.File.Close()
	if first.Number != 0 || second.Number != 1 || first.UID()+sandbox.UIDs > second.UID() {
		t.Errorf("slots %d and %d, from the user ids %d and %d", first.Number, second.Number, first.UID(), second.UID())
	}
	if top := firstUID + Max*sandbox.UIDs - 1; top > math.MaxInt32 {
		t.Errorf("user ids go up to %d", top)
	}
	first.File.Close()
	again := must[*Slot](t)(In(d.path).Take()) // As another process does.
	defer again.File.Close()
	if again.Number != 0 {
		t.Errorf("slot %d is taken, not the one that is free", again.Number)
	}
}

// connected takes a slot with a network, and returns the slots whose connections were
// removed for it.
func connected(t *testing.T, d *Dir) (s *Slot, forgotten []int) {
	t.Helper()
	s = must[*Slot](t)(d.TakeConnected(func(slots []int) error {
		forgotten = append(forgotten, slots...)
		return nil
	}))
	return s, forgotten
}

func TestSlotsOfNetworksAreTakenInTurn(t *testing.T) {
	d := In(t.TempDir())
	for i := range 5 {
		s, forgotten := connected(t, d)
		s.File.Close()
		if s.Number != firstConnected+i || forgotten != nil {
			t.Errorf("take %d: slot %d, removed connections of %d", i, s.Number, forgotten)
		}
	}
	d.next.Store(Max - firstConnected - 1)
	last, _ := connected(t, d)
	defer last.File.Close()
	first, forgotten := connected(t, d)
	defer first.File.Close()
	if last.Number != Max-1 || first.Number != firstConnected {
		t.Errorf("slots %d and %d at the turn", last.Number, first.Number)
	}
	if want := []int{firstConnected, firstConnected + 1, firstConnected + 2, firstConnected + 3, firstConnected + 4}; !slices.Equal(forgotten, want) {
		t.Errorf("removed the connections of %d, want %d", forgotten, want)
	}
	for i := range 4 { // They were cleaned with the first.
		s, forgotten := connected(t, d)
		defer s.File.Close()
		if s.Number != firstConnected+1+i || forgotten != nil {
			t.Errorf("slot %d, removed connections of %d", s.Number, forgotten)
		}
	}
}

// TestRestartedNodesKnowUsedSlots takes slots as a node whose process is new does, beside an
// attempt that still has one.
func TestRestartedNodesKnowUsedSlots(t *testing.T) {
	before := In(t.TempDir())
	ended, _ := connected(t, before)
	running, _ := connected(t, before)
	defer running.File.Close()
	third, _ := connected(t, before)
	ended.File.Close()
	third.File.Close()
	s, forgotten := connected(t, In(before.path))
	defer s.File.Close()
	if s.Number != ended.Number || !slices.Equal(forgotten, []int{ended.Number, third.Number}) {
		t.Errorf("slot %d, removed the connections of %d", s.Number, forgotten)
	}
}

func TestSlotIsNotTakenWithConnections(t *testing.T) {
	d := In(t.TempDir())
	used, _ := connected(t, d)
	used.File.Close()
	failed := errors.New("failed")
	for range 2 {
		d.next.Store(0)
		if s, err := d.TakeConnected(func([]int) error { return failed }); !errors.Is(err, failed) {
			t.Fatalf("slot %v, error %v", s, err)
		}
	}
	d.next.Store(0)
	s, forgotten := connected(t, d) // It was given back, and is still marked.
	defer s.File.Close()
	if s.Number != used.Number || !slices.Equal(forgotten, []int{used.Number}) {
		t.Errorf("slot %d, removed the connections of %d", s.Number, forgotten)
	}
}

func TestSlotsOfNetworksTakeOthersAtLast(t *testing.T) {
	d := In(t.TempDir())
	d.slots, d.first = 20, 8
	var all []*Slot
	defer func() {
		for _, s := range all {
			s.File.Close()
		}
	}()
	for range d.slots {
		s, _ := connected(t, d)
		all = append(all, s)
	}
	if s, err := d.TakeConnected(nil); err == nil {
		t.Fatalf("slot %d is taken twice", s.Number)
	}
	if lowest := all[d.slots-d.first].Number; lowest != 0 {
		t.Errorf("slot %d was the first of the others", lowest)
	}
}

// TestSlotsOfContainers has nodes take slots for containers: each takes those again that it
// had before, and none of another as long as there are others. A slot that a network has had
// stays marked.
func TestSlotsOfContainers(t *testing.T) {
	d := In(t.TempDir())
	const first = 5
	take := func(owner string, want int) *Slot {
		t.Helper()
		s := must[*Slot](t)(d.TakeOwned(owner, first))
		if s.Number != want {
			t.Errorf("%s has the slot %d, want %d", owner, s.Number, want)
		}
		return s
	}
	sandbox := must[*Slot](t)(d.Take())
	a := take("a", 1)
	a.File.Close()
	b := take("b", 2)
	again := take("b", 3)
	b.File.Close()
	sandbox.File.Close()
	a, b = take("a", 1), take("b", 2)
	more := take("a", 0) // Nobody had it for containers.
	for _, s := range []*Slot{a, b, again, more} {
		s.File.Close()
	}
	take("c", 4).File.Close()
	take("d", 0).File.Close() // All of the first are somebody's.
	take("d", 0).File.Close()
	take("a", 1).File.Close()
	d.Disown("b")
	take("e", 2).File.Close()
	if err := os.WriteFile(filepath.Join(d.path, "3"), []byte("b 1 99999999999"), 0o600); err != nil {
		t.Fatal(err)
	}
	take("f", 3).File.Close() // The process of its owner is dead.
	d.slots, d.first = 5, 2
	for range 3 { // Those of networks are left.
		s, _ := connected(t, d)
		defer s.File.Close()
	}
	marked, _ := connected(t, d)
	marked.File.Close()
	if s := take("d", 0); s.Number != marked.Number {
		t.Fatalf("slot %d, not %d", s.Number, marked.Number)
	} else {
		s.File.Close()
	}
	s, forgotten := connected(t, d)
	defer s.File.Close()
	if s.Number != 0 || !slices.Equal(forgotten, []int{0}) {
		t.Errorf("slot %d, removed the connections of %d", s.Number, forgotten)
	}
}
