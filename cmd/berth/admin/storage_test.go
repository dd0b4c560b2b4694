package admin

import (
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

// TestMigrate waits for the end of a migration, and says what is not moved.
func TestMigrate(t *testing.T) {
	const path = "/admin/storage/migrate"
	var ended string
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + path: clitest.Answer(
			`{"status": "running", "blobs": 4, "done": 1, "failed": 0, "bytes": 0, "error": null}`),
		"GET " + clitest.APIRoot + path: func(w http.ResponseWriter, r *http.Request) { clitest.Answer(ended)(w, r) },
	})
	ended = `{"status": "done", "blobs": 4, "done": 4, "failed": 0, "bytes": 3145728, "error": null}`
	r := execute(t, "", "admin", "storage", "migrate")
	if r.Code != 0 || !strings.Contains(r.Out, "All 4 chunks") || !strings.Contains(r.Errors, "4 of 4 chunks, 3 MiB copied") {
		t.Errorf("done: %+v", r)
	}
	ended = `{"status": "failed", "blobs": 4, "done": 3, "failed": 1, "bytes": 0, "error": "The object store does not answer."}`
	r = execute(t, "", "admin", "storage", "migrate")
	if r.Code == 0 || !strings.Contains(r.Errors, "1 of 4 chunks failed") || !strings.Contains(r.Errors, "does not answer") {
		t.Errorf("failed: %+v", r)
	}
	ended = `{"status": "none", "blobs": 0, "done": 0, "failed": 0, "bytes": 0, "error": null}`
	if r = execute(t, "", "admin", "storage", "migrate"); r.Code == 0 || !strings.Contains(r.Errors, "repeat the command") {
		t.Errorf("restarted: %+v", r)
	}
}
