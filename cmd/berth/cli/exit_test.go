package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestExitCode(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"any", fs.ErrNotExist, ExitFailed},
		{"usage", UsageErrorf("no"), ExitUsage},
		{"wrapped", fmt.Errorf("a: %w", &ExitError{Code: 7, Err: errors.New("b")}), 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ExitCode(tt.err); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
