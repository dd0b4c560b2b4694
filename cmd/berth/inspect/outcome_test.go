package inspect

import (
	"io/fs"
	"testing"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

func TestExecutionExit(t *testing.T) {
	code := func(n int) *int { return &n }
	tests := []struct {
		name   string
		status compute.Status
		code   *int
		want   int
	}{
		{"completed", compute.StatusCompleted, code(0), 0},
		{"exit 3", compute.StatusFailed, code(3), 3},
		{"out of memory", compute.StatusFailed, code(137), 137},
		{"time limit", compute.StatusFailed, code(143), 143},
		{"failed before it ran", compute.StatusFailed, nil, cli.ExitFailed},
		{"failed with 0", compute.StatusFailed, code(0), cli.ExitFailed},
		{"ours", compute.StatusSystemFailure, nil, cli.ExitSystem},
		{"ours, after it ran", compute.StatusSystemFailure, code(1), cli.ExitSystem},
		{"aborted", compute.StatusAborted, code(137), 137},
		{"aborted in the queue", compute.StatusAborted, nil, cli.ExitNeverRan},
		{"stopped", compute.StatusCancelled, code(143), 143},
		{"stopped in the queue", compute.StatusCancelled, nil, cli.ExitNeverRan},
		{"stopped and exited with 0", compute.StatusCancelled, code(0), cli.ExitNeverRan},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &wire.Execution{ReturnCode: tt.code}
			e.Status = tt.status
			if got := executionExit(e); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			if got := cli.ExitCode(Outcome(e)); got != tt.want {
				t.Errorf("exit code of the command %d, want %d", got, tt.want)
			}
		})
	}
}

// TestInterruptedExit checks that an error that is no end of the command has
// an exit code that no execution has.
func TestInterruptedExit(t *testing.T) {
	err := Interrupted(t.Context(), compute.ExecutionID{}, fs.ErrClosed)
	if got := cli.ExitCode(err); got != cli.ExitSystem {
		t.Errorf("exit code %d, want %d", got, cli.ExitSystem)
	}
}
