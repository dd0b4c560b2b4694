package main

import (
	"slices"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

// TestClientHasNoServer holds that a build for clients has no part of a node, on
// each system that it is for.
func TestClientHasNoServer(t *testing.T) {
	for _, system := range []string{"darwin", "windows", "linux"} {
		packages := strings.Fields(clitest.Dependencies(t, system))
		if !slices.Contains(packages, "berth/api/client") {
			t.Errorf("%s: the client is not part of %d packages", system, len(packages))
		}
		for _, p := range packages {
			for _, server := range []string{"berth/node", "berth/fsm", "berth/cluster", "berth/gpu", "berth/bench", "github.com/hashicorp"} {
				if p == server || strings.HasPrefix(p, server+"/") {
					t.Errorf("%s: a client has %s", system, p)
				}
			}
		}
	}
}
