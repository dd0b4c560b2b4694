//go:build !faults

package fault

import (
	"errors"
	"os"
	"time"
)

// Enabled reports whether this binary has failpoints.
const Enabled = false

// Point is a failpoint that cannot fail by itself: what is armed there happens.
func Point(string) {}

// Error is a failpoint at a step that can fail: what is armed there happens,
// and an armed error is returned.
func Error(string) error { return nil }

// Planted reports whether the bug is planted into this process.
func Planted(Bug) bool { return false }

// Offset returns by how much this process's clock of the day is wrong.
func Offset() time.Duration { return 0 }

// SnapshotEvery returns after how many entries to make a snapshot and forget
// them, 0 for what the program does by itself.
func SnapshotEvery() uint64 { return 0 }

// Environment returns the variables that hand the faults of this process on to
// one that it starts.
func Environment() []string { return nil }

// Setup returns what is wrong with the variables of this package. A program
// calls it first, so that a test that arms a binary without failpoints fails.
func Setup() error {
	for _, name := range []string{faultsVariable, fileVariable, plantVariable} {
		if os.Getenv(name) != "" {
			return errors.New(name + " is set, but this binary has no failpoints: build it with -tags faults")
		}
	}
	return nil
}
