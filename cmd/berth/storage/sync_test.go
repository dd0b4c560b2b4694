package storage_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/cmd/berth/storage"
)

// TestSyncLeavesOddKeysOut fetches all files but those whose keys cannot be names of
// files, and fails at the end.
func TestSyncLeavesOddKeysOut(t *testing.T) {
	const tag = `"etag":"9dd4e461268c8034f5c8564e155c67a6"` // The MD5 of "x".
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/storage/list-files": clitest.Answer(`[{"key":"d/a","size":1,` + tag + `},` +
			`{"key":"d/b/","size":1,` + tag + `},{"key":"d/c","size":1,` + tag + `},` +
			`{"key":"d/a/b","size":1,` + tag + `},{"key":"d//c","size":1,` + tag + `}]`),
		"GET " + clitest.APIRoot + "/storage/download/": clitest.Answer("x"),
	})
	dir := t.TempDir()
	r := clitest.Execute(t.Context(), clitest.Root(storage.New()), "", "storage", "sync", "storage://d", dir)
	if r.Code != cli.ExitFailed || !strings.Contains(r.Errors, `"d/b/"`) ||
		!strings.Contains(r.Errors, `"a/b" cannot be a file of this machine: "a" is one`) || !strings.Contains(r.Errors, `"d//c"`) {
		t.Errorf("it ends with %+v", r)
	}
	for _, name := range []string{"a", "c"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "x" {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
}
