package compute_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"berth/compute"
)

func TestErrorCarriesItsCode(t *testing.T) {
	refusal := compute.Errorf(compute.CodeConflict, "execution %d has ended", 7)
	internal := compute.Errorf(compute.CodeInternal, "read /secret/path: %w", io.ErrUnexpectedEOF)
	tests := []struct {
		name    string
		err     error
		code    compute.Code
		message string
	}{
		{"nil", nil, "", ""},
		{"plain", io.EOF, compute.CodeInternal, "Internal error."},
		{"coded", refusal, compute.CodeConflict, "execution 7 has ended"},
		{"wrapped", fmt.Errorf("submit: %w", refusal), compute.CodeConflict, "execution 7 has ended"},
		{"joined", errors.Join(io.EOF, refusal), compute.CodeConflict, "execution 7 has ended"},
		{"internal", fmt.Errorf("serve: %w", internal), compute.CodeInternal, "Internal error."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compute.CodeOf(tt.err); got != tt.code {
				t.Errorf("code %q, want %q", got, tt.code)
			}
			if got := compute.MessageOf(tt.err); got != tt.message {
				t.Errorf("message %q, want %q", got, tt.message)
			}
		})
	}
	if !errors.Is(internal, io.ErrUnexpectedEOF) {
		t.Error("the operator's error is lost")
	}
	if got := refusal.Error(); got != "conflict: execution 7 has ended" {
		t.Errorf("printed as %q", got)
	}
}

func TestErrorHints(t *testing.T) {
	e := compute.Errorf(compute.CodeUnavailable, "no leader").Named("no_leader").Retry(2 * time.Second)
	if e.Detail != "no_leader" || e.RetryAfter != 2*time.Second || e.Code != compute.CodeUnavailable {
		t.Errorf("got %+v", e)
	}
}
