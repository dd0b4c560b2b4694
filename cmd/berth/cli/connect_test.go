package cli

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/contexts"
)

// connect returns the target of a command line.
func connect(operator bool, args ...string) (Target, error) {
	conn := &Connection{Operator: operator}
	var t Target
	var err error
	cmd := &cobra.Command{Use: "x", RunE: func(cmd *cobra.Command, _ []string) error {
		t, err = conn.Target(cmd)
		return nil
	}}
	conn.Register(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return t, errors.Join(cmd.Execute(), err)
}

// mustKeep stores contexts, the first of which is current.
func mustKeep(t *testing.T, name string, c contexts.Context) {
	t.Helper()
	err := contexts.Update(func(f *contexts.File) error {
		f.Contexts[name] = c
		if f.Current == "" {
			f.Current = name
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// alone has a test see no context and no variable of its user.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range []string{"BERTH_ADDR", "BERTH_TOKEN", "BERTH_CONTEXT", "BERTH_ORG", "BERTH_CACERT"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
}

// TestTargetPrecedence holds that flags win over variables, and those over
// contexts, and that a context's credential goes to its own cluster only.
func TestTargetPrecedence(t *testing.T) {
	alone(t)
	if _, err := connect(false); err == nil || !strings.Contains(err.Error(), "berth login") {
		t.Errorf("without anything: %v", err)
	}
	mustKeep(t, "lab", contexts.Context{Addrs: []string{"http://lab"}, Key: "lk_lab", Org: "vision"})
	mustKeep(t, "other", contexts.Context{Addrs: []string{"http://other"}, AccessToken: "eyJ", CACert: "pem"})
	mustWrite(t, "token", "lk_file\n")
	mustWrite(t, "dev/cluster.json", `{"nodes":[{"api":"http://dev"}],"api_key":"lk_dev","root_token":"brt_dev"}`)
	mustKeep(t, "dev", contexts.Context{DevDir: filepath.Join(mustDir(t), "dev")})
	mustKeep(t, "gone", contexts.Context{DevDir: filepath.Join(mustDir(t), "gone")})
	for _, test := range []struct {
		name, args, env      string
		addr, token, org, as string // as is the name of the context.
	}{
		{name: "the current context", addr: "http://lab", token: "lk_lab", org: "vision", as: "lab"},
		{name: "another", args: "--context other", addr: "http://other", token: "eyJ", as: "other"},
		{name: "by a variable", env: "BERTH_CONTEXT=other", addr: "http://other", token: "eyJ", as: "other"},
		{name: "of berth dev", args: "--context dev", addr: "http://dev", token: "lk_dev"},
		{name: "an organization", args: "--org nlp", addr: "http://lab", token: "lk_lab", org: "nlp", as: "lab"},
		{name: "another address", args: "--addr http://evil", addr: "http://evil"},
		{name: "the same address", args: "--addr http://lab/", addr: "http://lab", token: "lk_lab", org: "vision", as: "lab"},
		{name: "variables", env: "BERTH_ADDR=http://env BERTH_TOKEN=lk_env", addr: "http://env", token: "lk_env"},
		{name: "a variable and a flag", args: "--addr http://flag", env: "BERTH_ADDR=http://env BERTH_TOKEN=lk_env", addr: "http://flag", token: "lk_env"},
		{name: "a file", args: "--token-file token", env: "BERTH_TOKEN=lk_env", addr: "http://lab", token: "lk_file"},
		{name: "only a token", env: "BERTH_TOKEN=lk_env", addr: "http://lab", token: "lk_env"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(test.env) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			got, err := connect(false, strings.Fields(test.args)...)
			if err != nil || strings.Join(got.Addrs, ",") != test.addr || got.Token != test.token || got.Org != test.org || got.Name != test.as {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if got, err := connect(true, "--context", "dev"); err != nil || got.Token != "brt_dev" {
		t.Errorf("an operator: %+v, %v", got, err)
	}
	for args, want := range map[string]string{
		"--context nowhere": "no context", "--context gone": "no cluster of berth dev runs", "--token-file nowhere": "no such file",
		"--cacert nowhere": "--cacert",
	} {
		if _, err := connect(false, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || ExitCode(err) != ExitUsage {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := os.Chmod(mustPath(t), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(false); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	t.Setenv("BERTH_ADDR", "http://env")
	t.Setenv("BERTH_TOKEN", "lk_env")
	if _, err := connect(false); err != nil {
		t.Errorf("what needs no context is refused: %v", err)
	}
}

func mustPath(t *testing.T) string {
	t.Helper()
	path, err := contexts.Path()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func mustDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSessionsAreRenewed holds that a session that ended is renewed, before a call
// or after it was refused, that the new one is kept, and that a second client
// takes what the first one kept.
func TestSessionsAreRenewed(t *testing.T) {
	alone(t)
	refreshed, ended := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/auth/refresh") && ended:
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"detail":"revoked","code":"token_revoked"}`) //nolint:errcheck // The client may be gone.
		case strings.HasSuffix(r.URL.Path, "/auth/refresh"):
			refreshed++
			io.WriteString(w, `{"access_token":"new","refresh_token":"r2","expires_in":900}`) //nolint:errcheck // As above.
		case r.Header.Get("Authorization") == "Bearer new":
			io.WriteString(w, `{"email":"bea@example.com"}`) //nolint:errcheck // As above.
		default:
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"detail":"expired","code":"unauthenticated"}`) //nolint:errcheck // As above.
		}
	}))
	t.Cleanup(server.Close)
	for name, expires := range map[string]time.Time{"has expired": {}, "was refused": time.Now().Add(time.Hour)} {
		mustKeep(t, "lab", contexts.Context{
			Addrs: []string{server.URL}, AccessToken: "old", RefreshToken: "r1", ExpiresAt: expires,
		})
		refreshed, ended = 0, false
		first, err := connect(false)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // The second client still has the old token from the file.
			c, err := first.Client(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if status, err := c.UserStatus(t.Context()); err != nil || status.Email != "bea@example.com" {
				t.Errorf("%s: %+v, %v", name, status, err)
			}
		}
		if f, err := contexts.Load(); err != nil || refreshed != 1 || f.Contexts["lab"].RefreshToken != "r2" {
			t.Errorf("%s: refreshed %d times, kept %+v, %v", name, refreshed, f.Contexts["lab"], err)
		}
	}
	mustKeep(t, "lab", contexts.Context{Addrs: []string{server.URL}, AccessToken: "old", RefreshToken: "r1"})
	ended = true
	target, err := connect(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Client(t.Context()); err == nil || !strings.Contains(err.Error(), "berth login --context lab") {
		t.Errorf("a session that was revoked: %v", err)
	}
}

func TestUnreachableIsNoFailure(t *testing.T) {
	err := &client.UnreachableError{Addrs: []string{"http://a"}, Err: io.EOF}
	var out strings.Builder
	PrintError(&out, err)
	if ExitCode(err) != ExitSystem || !strings.Contains(out.String(), "cannot reach the cluster at http://a") ||
		!strings.Contains(out.String(), "BERTH_ADDR") {
		t.Errorf("exit code %d, %s", ExitCode(err), out.String())
	}
	out.Reset()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	c, err2 := client.New(client.Config{Addrs: []string{server.URL}, RetryFor: -1})
	if err2 != nil {
		t.Fatal(err2)
	}
	_, err2 = c.Nodes(t.Context())
	PrintError(&out, err2)
	if !strings.Contains(out.String(), "--cacert") || strings.Contains(out.String(), "check the address") {
		t.Errorf("an unknown authority: %s", out.String())
	}
	out.Reset()
	PrintError(&out, &client.Error{Status: 401, Code: "unauthenticated", Detail: "No.", RequestID: "4711"})
	if !strings.Contains(out.String(), "berth login") || !strings.Contains(out.String(), "request 4711") {
		t.Error(out.String())
	}
}

func TestUnique(t *testing.T) {
	items := [][]string{{"0198-aaaa", "train"}, {"0198-baaa", "eval"}, {"0198-cccc", "eval"}, {"0198-dddd", "train2"}}
	for arg, want := range map[string]string{
		"0198-cccc": "0198-cccc", "train": "0198-aaaa", "dddd": "0198-dddd", "DDDD": "0198-dddd", "baaa": "0198-baaa",
		"eval": "", "aaa": "", "x": "", "": "",
	} {
		got, err := Unique("execution", arg, items, func(i []string) []string { return i })
		if want == "" && err == nil || want != "" && (err != nil || got[0] != want) {
			t.Errorf("%q names %v, %v", arg, got, err)
		}
	}
}

func TestEach(t *testing.T) {
	cmd := &cobra.Command{}
	var out strings.Builder
	cmd.SetErr(&out)
	cmd.SetContext(t.Context())
	var done []string
	err := Each(cmd, []string{"a", "b", "c"}, func(arg string) error {
		done = append(done, arg)
		if arg == "b" {
			return &ExitError{Code: ExitSystem, Err: io.EOF}
		}
		return nil
	})
	if len(done) != 3 || ExitCode(err) != ExitSystem || !strings.Contains(out.String(), "berth: b: EOF") ||
		err.Error() != "1 of 3 failed" {
		t.Errorf("did %q, %v, said %s", done, err, out.String())
	}
	if err := Each(cmd, []string{"b"}, func(string) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("one: %v", err)
	}
}
