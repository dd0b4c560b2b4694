//go:build faults

package fault

import (
	"os"
	"sync"
	"time"
)

// Enabled reports whether this binary has failpoints.
const Enabled = true

// process is what the environment of this process arms.
//
//nolint:gochecknoglobals // Failpoints stand everywhere; none is handed anything.
var process = sync.OnceValues(func() (*injector, error) { return newInjector(os.Getenv) })

// Point is a failpoint that cannot fail by itself: what is armed there happens.
func Point(name string) { _ = mustInjector().hit(name) }

// Error is a failpoint at a step that can fail: what is armed there happens,
// and an armed error is returned.
func Error(name string) error { return mustInjector().hit(name) }

// Planted reports whether the bug is planted into this process.
func Planted(bug Bug) bool { return mustInjector().planted[bug] }

// Offset returns by how much this process's clock of the day is wrong.
func Offset() time.Duration { return mustInjector().offset() }

// SnapshotEvery returns after how many entries to make a snapshot and forget
// them, 0 for what the program does by itself.
func SnapshotEvery() uint64 { return mustInjector().snapshotEvery() }

// Environment returns the variables that hand the faults of this process on to
// one that it starts.
func Environment() []string {
	var out []string
	for _, name := range []string{faultsVariable, fileVariable, logVariable, plantVariable} {
		if value := os.Getenv(name); value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// Setup returns what is wrong with the variables of this package. A program
// calls it first, so that a rule with a wrong name fails its start.
func Setup() error {
	_, err := process()
	return err
}

// mustInjector returns the process's injector. A rule that cannot be read is a
// mistake of the test that set it.
func mustInjector() *injector {
	i, err := process()
	if err != nil {
		panic(err)
	}
	return i
}
