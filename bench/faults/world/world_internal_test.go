package world

import "testing"

// TestOnOneNode checks profiles as records of executions spell them.
func TestOnOneNode(t *testing.T) {
	for profile, want := range map[string]bool{
		"gpu.l40s": true, "gpu.t4": true, "gpu.t4.500m": true, "gpu.h100": false, "gpu.h100.2x": false, "cpu": false, "": false,
	} {
		if got := OnOneNode(profile); got != want {
			t.Errorf("%q: %v, want %v", profile, got, want)
		}
	}
}
