package docs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/fault"
)

// TestChecklistsAreCurrent checks that the files which CONTRIBUTING.md names exist, and that
// the functions which its checklists name are declared where they say.
func TestChecklistsAreCurrent(t *testing.T) {
	document := mustRead(t, "../CONTRIBUTING.md")
	paths := regexp.MustCompile("`([a-z]+/[a-z_/]+\\.go)`").FindAllStringSubmatch(document, -1)
	if len(paths) < 15 {
		t.Fatalf("only %d files are found in it", len(paths))
	}
	for _, match := range paths {
		if _, err := os.Stat(filepath.Join("..", match[1])); err != nil {
			t.Error(err)
		}
	}
	declared := map[string]string{
		"stored": "fsm/state.go", "storedNames": "fsm/state.go", "loaders": "fsm/snapshot.go", "rebuilt": "fsm/check.go",
		"everyCommand": "fsm/command/frame_test.go", "entryOf": "fsm/audit_entries.go", "unaudited": "fsm/appliers_test.go",
		"appliers": "fsm/appliers.go", "rows": "fsm/command/table.go",
		"routes": "api/routes.go", "tags": "api/openapi.go", "sample": "api/authorization_test.go",
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		function := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `\(`)
		if source := mustRead(t, "../"+declared[name]); !function.MatchString(source) {
			t.Errorf("%s is not declared in %s", name, declared[name])
		}
		if !strings.Contains(document, "`"+name+"`") {
			t.Errorf("%s is not in the document", name)
		}
	}
	for _, match := range regexp.MustCompile("`([a-z]+[A-Z][A-Za-z]*)`").FindAllStringSubmatch(document, -1) {
		if declared[match[1]] == "" {
			t.Errorf("where is %s declared?", match[1])
		}
	}
}

// TestMethodCountsFailpoints checks the number of failpoints that the method tells.
func TestMethodCountsFailpoints(t *testing.T) {
	want := fmt.Sprintf("%d of these points", len(fault.Points()))
	if !strings.Contains(mustRead(t, "reliability/method.md"), want) {
		t.Errorf("reliability/method.md does not say %q", want)
	}
}
