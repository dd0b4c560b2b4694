package admin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

func TestAdmin(t *testing.T) {
	var token, user map[string]any
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/admin/join-tokens": clitest.RecordSent(t, &token, `{"token":"bjt_1","role":"worker","uses":2}`),
		"POST " + clitest.APIRoot + "/admin/users":       clitest.RecordSent(t, &user, `{"email":"a@b.c","org_slug":"acme"}`),
	})
	dir := t.TempDir()
	out := filepath.Join(dir, "token")
	args := []string{"admin", "token", "create", "--role", "worker", "--ttl", "5m", "--uses", "2", "--out", out}
	if r := execute(t, "", args...); r.Code != 0 || strings.Contains(r.Out+r.Errors, "bjt_1") {
		t.Errorf("got %+v, want success and the secret in the file alone", r)
	}
	data, err := os.ReadFile(out)
	info, statErr := os.Stat(out)
	if err != nil || statErr != nil || string(data) != "bjt_1\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %q, %v", data, err)
	}
	if token["role"] != "worker" || token["ttl"] != 300.0 || token["uses"] != 2.0 {
		t.Errorf("sent %v", token)
	}
	if r := execute(t, "", args...); r.Code == 0 {
		t.Error("an existing file was written over")
	}
	r := execute(t, "long enough\n", "admin", "user", "create", "--email", "a@b.c", "--org", "acme", "--password-file", "-")
	if r.Code != 0 || user["password"] != "long enough" || user["org_slug"] != "acme" || strings.Contains(r.Out, "long enough") {
		t.Errorf("got %+v, sent %v", r, user)
	}
}

// TestRootToken keeps a new root token in a file that is there before the old one ends, and leaves
// none behind if nothing was rotated.
func TestRootToken(t *testing.T) {
	dir := t.TempDir()
	out, asked := filepath.Join(dir, "token"), 0
	answer := func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(out); err != nil {
			t.Errorf("while the token is rotated: %v", err)
		}
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"detail":"no","code":"rotation_in_progress"}`))
			return
		}
		_, _ = w.Write([]byte(`{"root_token":"brt_new"}`))
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{"POST " + clitest.APIRoot + "/admin/root-token/rotate": answer})
	args := []string{"admin", "root-token", "rotate", "--out", out}
	if r := execute(t, "", args...); r.Code == 0 {
		t.Errorf("a refusal: %+v", r)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a refused rotation leaves a file")
	}
	if r := execute(t, "", args...); r.Code != 0 || strings.Contains(r.Out+r.Errors, "brt_") {
		t.Errorf("got %+v", r)
	}
	data, err := os.ReadFile(out)
	info, statErr := os.Stat(out)
	if err != nil || statErr != nil || string(data) != "brt_new\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %q, %v", data, err)
	}
	if r := execute(t, "", args...); r.Code == 0 || asked != 2 {
		t.Errorf("an existing file was written over, or the token rotated: %d times", asked)
	}
}

// TestRotateRootTokenAsJSON prints the token as JSON only if no file has it.
func TestRotateRootTokenAsJSON(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/admin/root-token/rotate": clitest.Answer(`{"root_token":"brt_new"}`),
	})
	rotate := []string{"admin", "root-token", "rotate", "--json", "--out"}
	r := execute(t, "", append(rotate, "-")...)
	if r.Code != 0 || !strings.Contains(r.Out, `"root_token": "brt_new"`) {
		t.Errorf("got %+v", r)
	}
	r = execute(t, "", append(rotate, filepath.Join(t.TempDir(), "token"))...)
	if r.Code != 0 || strings.Contains(r.Out, "brt_new") || !strings.Contains(r.Out, `"done": "replaced"`) {
		t.Errorf("got %+v", r)
	}
}
