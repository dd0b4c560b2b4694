package executor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSlotsOfContainers has nodes take slots for containers: each takes those again that it
// had before, and none of another as long as there are others.
func TestSlotsOfContainers(t *testing.T) {
	dir := slots(t.TempDir())
	const first = 5
	take := func(owner string, want int) *slot {
		t.Helper()
		s, err := dir.takeOwn(owner, first)
		if err != nil {
			t.Fatal(err)
		}
		if s.number != want {
			t.Errorf("%s has the slot %d, want %d", owner, s.number, want)
		}
		return s
	}
	sandbox, err := dir.take()
	if err != nil {
		t.Fatal(err)
	}
	a := take("a", 1)
	a.file.Close()
	b := take("b", 2)
	again := take("b", 3)
	b.file.Close()
	sandbox.file.Close()
	a, b = take("a", 1), take("b", 2)
	more := take("a", 0) // Nobody had it for containers.
	for _, s := range []*slot{a, b, again, more} {
		s.file.Close()
	}
	take("c", 4).file.Close()
	take("d", 0).file.Close() // All of the first are somebody's.
	take("d", 0).file.Close()
	take("a", 1).file.Close()
	dir.disown("b")
	take("e", 2).file.Close()
	if err := os.WriteFile(filepath.Join(string(dir), "3"), []byte("b 1 99999999999"), 0o600); err != nil {
		t.Fatal(err)
	}
	take("f", 3).file.Close() // The process of its owner is dead.
}
