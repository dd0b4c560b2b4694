package dev

import (
	"slices"
	"testing"
)

// TestArguments checks that the process that runs a cluster gets all settings.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"nothing but the directory", Config{Dir: "/d", Restart: true}, []string{"dev", "--dir", "/d"}},
		{
			"everything",
			Config{Dir: "/d", Nodes: 5, Workers: 2, GPUs: "n1=a100:1", Profiles: true},
			[]string{"dev", "--dir", "/d", "--nodes", "5", "--workers", "2", "--gpus", "n1=a100:1", "--no-restart", "--profiles"},
		},
	} {
		if got := tt.cfg.arguments(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
