//go:build faults

package fault

import (
	"os"
	"sync"
	"time"
)

// Enabled reports whether this binary has failpoints.
const Enabled = true

// process returns the injector that the environment of this process configures.
//
//nolint:gochecknoglobals // Failpoints are everywhere, and their callers have no injector to pass.
var process = sync.OnceValues(func() (*injector, error) { return newInjector(os.Getenv) })

// Point is a failpoint that cannot return an error. It applies the armed
// action.
func Point(name string) { _ = mustInjector().hit(name) }

// Error is a failpoint at a step that can fail. It applies the armed action,
// and returns an armed error.
func Error(name string) error { return mustInjector().hit(name) }

// Planted reports whether the bug is planted into this process.
func Planted(bug Bug) bool { return mustInjector().planted[bug] }

// Offset returns the injected shift of this process's wall clock.
func Offset() time.Duration { return mustInjector().offset() }

// SnapshotEvery returns the number of entries after which to make a snapshot
// and truncate the log, 0 for the program's default.
func SnapshotEvery() uint64 { return mustInjector().snapshotEvery() }

// Environment returns the variables that pass the faults of this process on to
// a child process.
func Environment() []string {
	var out []string
	for _, name := range []string{faultsVariable, fileVariable, logVariable, plantVariable} {
		if value := os.Getenv(name); value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// Setup returns an error if the variables of this package are invalid. A
// program calls it first, so that a rule with a wrong name fails its start.
func Setup() error {
	_, err := process()
	return err
}

// mustInjector returns the process's injector. An invalid rule is a mistake of
// the test that set it.
func mustInjector() *injector {
	i, err := process()
	if err != nil {
		panic(err)
	}
	return i
}
