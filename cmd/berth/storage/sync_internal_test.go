package storage

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestOnlyOwnPartsAreLeftOut holds that a directory has the files of its user that are
// named like parts, and not what fetch left of files.
func TestOnlyOwnPartsAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	tag := "0123456789abcdef0123456789abcdef"
	users := []string{"a.part", "b.0123.part", "c.of3.part", "d.0123456789AB.part", "e.0123456789ab.part.txt"}
	for _, name := range append([]string{partName("x", tag, 0), partName("y.bin", tag+"-4", 4)}, users...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := local(dir)
	if names := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(names, users) {
		t.Errorf("the directory has %q, %v", names, err)
	}
}
