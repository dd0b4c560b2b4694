package dev

import (
	"slices"
	"testing"
)

// TestWithheldVariables checks which variables are named as not passed on.
func TestWithheldVariables(t *testing.T) {
	env := []string{
		"HOME=/root", "BERTH_RPC_ADDR=:1", "BERTH_ADDR=http://a", "BERTH_TOKEN=x", "BERTH_TEST_OFFLINE=1",
		"BERTH_API_ADDR=:2", "BERTHA=1",
	}
	if got, want := withheld(env), []string{"BERTH_API_ADDR", "BERTH_RPC_ADDR"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
