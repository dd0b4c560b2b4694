package composefile_test

import (
	"strings"
	"testing"

	"github.com/distribution/reference"

	"berth/composefile"
)

// TestOwnNames refuses names of images that only nodes use, and no other.
func TestOwnNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for name, own := range map[string]bool{
		"berth.pulled/team/secret:0123":             true,
		"berth.pulled/team/secret" + digest:         true,
		"berth.pulled/image":                        true,
		"BERTH.pulled/image":                        true,
		"berth.pulled:443/image":                    true,
		"127.0.0.1:34567/berth-pull/n1/abc:1":       true,
		"127.0.0.1:34567/berth-pull/n1/x" + digest:  true,
		"127.8.0.1:1/berth-pull/n1/abc":             true,
		"localhost:5000/berth-pull/n1/abc":          true,
		"localhost/berth-pull/n1/abc":               true,
		"[::1]:5000/berth-pull/n1/abc":              true,
		"python:3.12-slim":                          false,
		"berth.pulled":                              false, // At Docker Hub.
		"library/berth.pulled:1":                    false,
		"registry.example.org/berth.pulled/x":       false,
		"pulled.berth.pulled.example.org/x":         false,
		"127.0.0.1:5000/team/x":                     false,
		"localhost:5000/berth-pulls/x":              false,
		"localhost:5000/team/berth-pull/x":          false,
		"registry.example.org/berth-pull/x":         false,
		"berth-pull/x":                              false,
		"registry.localhost:5000/berth-pull/team/x": false,
	} {
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			t.Fatal(name, err)
		}
		if composefile.OwnName(named) != own {
			t.Errorf("%s: a node's own is %t", name, !own)
		}
	}
}
