package admin

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// smallDisk returns a directory with a disk of its own of 64 KiB, and a function that fills it up.
func smallDisk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir, func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("the disk is not full: %v", err)
		}
	}
}

// TestRootTokenOnAFullDisk rotates nothing if the disk has no space for the token, keeps the token
// if the disk fills up while the cluster is asked, and shows it if it cannot be written all the same.
func TestRootTokenOnAFullDisk(t *testing.T) {
	dir, fill := smallDisk(t)
	asked, meanwhile := 0, fill
	answer := func(w http.ResponseWriter, _ *http.Request) {
		asked++
		meanwhile()
		_, _ = w.Write([]byte(`{"root_token":"brt_new"}`))
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{"POST " + clitest.APIRoot + "/admin/root-token/rotate": answer})
	out := filepath.Join(dir, "token")
	args := []string{"admin", "root-token", "rotate", "--out", out}
	left := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("the disk has %q, %v, want %q", names, err, want)
		}
	}

	fill()
	if r := execute(t, "", args...); r.Code == 0 || asked != 0 || !strings.Contains(r.Errors, "no space left") {
		t.Errorf("a full disk: %+v, asked %d times", r, asked)
	}
	left("rest")

	if err := os.Remove(filepath.Join(dir, "rest")); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", args...)
	if data, err := os.ReadFile(out); r.Code != 0 || err != nil || string(data) != "brt_new\n" {
		t.Errorf("filled up meanwhile: %+v, the file has %q, %v", r, data, err)
	}
	left("rest", "token")

	for _, name := range []string{"rest", "token"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	meanwhile = func() { // Another program takes the space.
		files, err := filepath.Glob(out + ".new*")
		if err != nil || len(files) != 1 {
			t.Errorf("beside the file: %q, %v", files, err)
			return
		}
		if err := os.Truncate(files[0], 0); err != nil {
			t.Error(err)
		}
		fill()
	}
	r = execute(t, "", args...)
	if r.Code == 0 || !strings.Contains(r.Errors, "shown this once:\nbrt_new\n") || !strings.Contains(r.Errors, "no space left") {
		t.Errorf("a token that cannot be written: %+v", r)
	}
	left("rest")
}
