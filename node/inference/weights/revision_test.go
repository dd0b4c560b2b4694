package weights_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/node/inference/weights"
)

// TestIgnoredRevisionIsSaid asks for a revision of a model that comes from a place without
// revisions: the log says that it is ignored.
func TestIgnoredRevisionIsSaid(t *testing.T) {
	models := t.TempDir()
	if err := os.MkdirAll(filepath.Join(models, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(models, "a", "b", "model.safetensors"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*weights.Config){
		"the operator's directory":   func(c *weights.Config) { c.Models = models },
		"the organization's storage": func(c *weights.Config) { c.Stored = &storage{version: "v"} },
	} {
		s := newStore(t, newHub(t, nil), change)
		for asked, want := range map[string]bool{"a/b@v2": true, "a/b": false} {
			var said []string
			say := func(text string) { said = append(said, text) }
			if _, err := s.Get(t.Context(), weights.Want{Name: asked}, []string{"safetensors"}, say); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(said, "\n")
			if strings.Contains(got, "@v2 is ignored: the model is from "+name) != want {
				t.Errorf("%s from %s: the log has %q", asked, name, got)
			}
		}
	}
}
