//go:build !faults

package fault

import (
	"errors"
	"os"
	"time"
)

// Enabled reports whether this binary has failpoints.
const Enabled = false

// Point is a failpoint that cannot return an error. It applies the armed
// action.
func Point(string) {}

// Error is a failpoint at a step that can fail. It applies the armed action,
// and returns an armed error.
func Error(string) error { return nil }

// Planted reports whether the bug is planted into this process.
func Planted(Bug) bool { return false }

// Offset returns the injected shift of this process's wall clock.
func Offset() time.Duration { return 0 }

// SnapshotEvery returns the number of entries after which to make a snapshot
// and truncate the log, 0 for the program's default.
func SnapshotEvery() uint64 { return 0 }

// Environment returns the variables that pass the faults of this process on to
// a child process.
func Environment() []string { return nil }

// Setup returns an error if the variables of this package are set. A program
// calls it first, so that a test that arms a binary without failpoints fails.
func Setup() error {
	for _, name := range []string{faultsVariable, fileVariable, plantVariable} {
		if os.Getenv(name) != "" {
			return errors.New(name + " is set, but this binary has no failpoints: build it with -tags faults")
		}
	}
	return nil
}
