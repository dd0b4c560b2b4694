//go:build long

package berth_test

import (
	"os"
	"os/exec"
	"testing"
)

// TestClientsAreBuilt builds the client for systems that are not this one.
func TestClientsAreBuilt(t *testing.T) {
	for _, target := range []struct{ system, machine string }{
		{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "arm64"}, {"windows", "amd64"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "client", "-o", t.TempDir(), "./cmd/berth")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+target.system, "GOARCH="+target.machine)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s/%s: %v\n%s", target.system, target.machine, err, out)
		}
	}
}
