// Package docs_test holds documents to the code they speak of.
package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDependencies holds that dependencies.md has a line for each module that
// is imported, and none for a module that go.mod does not know.
func TestDependencies(t *testing.T) {
	document := mustRead(t, "dependencies.md")
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(document, -1) {
		if documented[match[1]] {
			t.Errorf("%s is there twice", match[1])
		}
		documented[match[1]] = true
	}
	modules := required(t)
	imported := map[string]bool{}
	for _, path := range imports(t) {
		if module, ok := moduleOf(modules, path); ok {
			imported[module] = true
		}
	}
	if len(imported) < 10 {
		t.Fatalf("only %d modules are imported: the test looks in the wrong place", len(imported))
	}
	for module := range imported {
		if !documented[module] {
			t.Errorf("%s is imported and has no line in dependencies.md", module)
		}
	}
	for module := range documented {
		if !slices.Contains(modules, module) {
			t.Errorf("%s has a line in dependencies.md and is not in go.mod", module)
		}
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// required returns the modules that go.mod requires.
func required(t *testing.T) []string {
	t.Helper()
	var modules []string
	line := regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+) v\S+`)
	for _, match := range line.FindAllStringSubmatch(mustRead(t, "../go.mod"), -1) {
		modules = append(modules, match[1])
	}
	return modules
}

// imports returns every path that a Go file of the tree imports.
func imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			paths = append(paths, imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// moduleOf returns the module that has the package: the longest that fits.
func moduleOf(modules []string, path string) (string, bool) {
	longest := ""
	for _, module := range modules {
		if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(longest) {
			longest = module
		}
	}
	return longest, longest != ""
}
