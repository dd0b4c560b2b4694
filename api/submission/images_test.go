package submission_test

import (
	"strings"
	"testing"

	"berth/api/submission"
)

// TestImageRef refuses what names no image, and names that are those of nodes.
func TestImageRef(t *testing.T) {
	for text, want := range map[string]string{
		"python:3.12-slim":                     "docker.io/library/python:3.12-slim",
		"registry.example.org/team/x":          "registry.example.org/team/x:latest",
		"UPPER CASE":                           "not the name of an image",
		"registry/" + strings.Repeat("x", 600): "not the name of an image",
		"berth.pulled/team/secret:0123":        "as its registry does",
		"127.0.0.1:34567/berth-pull/n1/abc:1":  "as its registry does",
	} {
		named, err := submission.ImageRef(text)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = named.String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.50s: %s, want %s", text, got, want)
		}
	}
}
