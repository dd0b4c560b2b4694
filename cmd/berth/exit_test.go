package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"berth/api/wire"
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
		{"failed before it ran", compute.StatusFailed, nil, exitFailed},
		{"failed with 0", compute.StatusFailed, code(0), exitFailed},
		{"ours", compute.StatusSystemFailure, nil, exitSystem},
		{"ours, after it ran", compute.StatusSystemFailure, code(1), exitSystem},
		{"aborted", compute.StatusAborted, code(137), 137},
		{"aborted in the queue", compute.StatusAborted, nil, exitNeverRan},
		{"stopped", compute.StatusCancelled, code(143), 143},
		{"stopped in the queue", compute.StatusCancelled, nil, exitNeverRan},
		{"stopped and exited with 0", compute.StatusCancelled, code(0), exitNeverRan},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &wire.Execution{ReturnCode: tt.code}
			e.Status = tt.status
			if got := executionExit(e); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			if got := exitCode(outcome(e)); got != tt.want {
				t.Errorf("exit code of the command %d, want %d", got, tt.want)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"any", fs.ErrNotExist, exitFailed},
		{"usage", usageErrorf("no"), exitUsage},
		{"wrapped", fmt.Errorf("a: %w", &exit{code: 7, err: errors.New("b")}), 7},
		{"lost", interrupted(t.Context(), compute.ExecutionID{}, fs.ErrClosed), exitSystem},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
