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
