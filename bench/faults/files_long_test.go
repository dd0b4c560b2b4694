//go:build long

package faults_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"berth/bench/faults"
)

// TestFilesUnderFaults stores, reads and deletes files while nodes are killed and cut off, their
// disks are full, lose what was not synced, or return other bits. No acknowledged file
// is lost, and no deleted one comes back.
func TestFilesUnderFaults(t *testing.T) {
	binary := mustBuild(t)
	operations := 0
	for range 3 {
		seed := uint64(rand.Uint32())
		report, err := faults.Run(t.Context(), faults.Config{
			Seed: seed, Duration: 100 * time.Second, Nodes: 3, Binary: binary,
			Nemeses: []string{
				"leader-kill", "follower-kill", "all-kill", "partition-leader", "partition-follower", "full-disk", "damaged-file", "power-cut",
			},
			Workloads: []string{"files"}, Dir: filepath.Join(t.TempDir(), "run"), Slow: 3, Progress: t.Output(),
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, v := range report.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
		if len(report.Faults) == 0 || report.Operations() < 100 || t.Failed() {
			t.Fatalf("seed %d: %d faults, %d operations", seed, len(report.Faults), report.Operations())
		}
		operations += report.Operations()
	}
	t.Logf("measured: %d operations", operations)
}
