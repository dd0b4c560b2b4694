package berth_test

import (
	"os"
	"os/exec"
	"testing"

	"berth/testsize"
)

// TestClientsAreBuilt builds the client for systems that are not this one.
func TestClientsAreBuilt(t *testing.T) {
	type target struct{ system, machine string }
	for _, target := range testsize.Pick(
		[]target{{"windows", "amd64"}}, // The one that differs most.
		[]target{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "arm64"}, {"windows", "amd64"}},
	) {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "client", "-o", t.TempDir(), "./cmd/berth")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+target.system, "GOARCH="+target.machine)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s/%s: %v\n%s", target.system, target.machine, err, out)
		}
	}
}
