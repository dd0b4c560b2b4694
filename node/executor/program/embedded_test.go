//go:build supervisor && !faults

package program

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// TestEmbedded executes the program that this build has inside. It refuses what no node
// asks for.
func TestEmbedded(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, args := range [][]string{nil, {"node"}, {"supervise"}} {
		var exit *exec.ExitError
		cmd := exec.Command(pathOf(firstExtra), args...)
		cmd.ExtraFiles = []*os.File{p.file}
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, not code 2", args, err)
		}
	}
}
