package inputs

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/compute"
)

// FuzzWorkFiles makes the files of a bundle: each is inside the work directory, none
// is there twice or goes through another one.
func FuzzWorkFiles(f *testing.F) {
	for _, b := range []*compute.Bundle{
		{Code: "1"},
		{Code: "1", FileName: "a.py", ImportFiles: map[string]string{"a.py": "2", "b/c.py": "3"}},
		{Code: "1", ImportFiles: map[string]string{"../a": "", "/b": "", "c/../../d": "", ".": "", "": ""}},
		{Code: "1", ImportFiles: map[string]string{"a": "", "a/b": "", "./a": ""}},
		{Code: "1", FileName: "..", ImportFiles: map[string]string{strings.Repeat("d/", 40) + "e": ""}},
	} {
		data, err := b.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "x.py")
		f.Add(data, "../x")
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		bundle, err := compute.DecodeBundle(data)
		if err != nil {
			return
		}
		if bundle.ImportFiles == nil {
			bundle.ImportFiles = make(map[string]string)
		}
		bundle.ImportFiles[name] = "x"
		files, err := workFiles(bundle)
		if err != nil {
			return
		}
		seen := make(map[string]bool)
		for _, file := range files {
			if seen[file.Path] || !filepath.IsLocal(file.Path) || filepath.Clean(file.Path) != file.Path || strings.Contains(file.Path, "\x00") {
				t.Errorf("the file %q of %q", file.Path, files)
			}
			seen[file.Path] = true
		}
		for _, file := range files {
			for dir := filepath.Dir(file.Path); dir != "."; dir = filepath.Dir(dir) {
				if seen[dir] {
					t.Errorf("%q goes through the file %q", file.Path, dir)
				}
			}
		}
	})
}
