package datadir

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloseUnlocks opens a directory again while a copy of the old lock's descriptor
// exists, as in a child that was forked and has not called exec yet.
func TestCloseUnlocks(t *testing.T) {
	root := t.TempDir()
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(int(d.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if _, err := Open(root); err == nil {
		t.Error("a directory in use was opened")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
