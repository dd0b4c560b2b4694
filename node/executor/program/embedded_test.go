//go:build supervisor

package program_test

import (
	"errors"
	"os/exec"
	"testing"

	"berth/node/executor/program"
)

// TestEmbedded executes the program that this build has inside. It refuses what no node
// asks for.
func TestEmbedded(t *testing.T) {
	p, err := program.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, args := range [][]string{nil, {"node"}, {"supervise"}} {
		var exit *exec.ExitError
		if err := exec.Command(p.Path(), args...).Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, not code 2", args, err)
		}
	}
}
