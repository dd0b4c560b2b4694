package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"berth/cmd/berth/cli"
)

const (
	// APIRoot is the path below which the API has its endpoints.
	APIRoot = "/api/v2/external"
	// SomeID is the id of an execution.
	SomeID = "0198c0de-0000-7000-8000-000000000001"
)

//nolint:gochecknoglobals // A flag of the test binary.
var update = flag.Bool("update", false, "update the golden files")

// Result is the exit code and the output of a command.
type Result struct {
	Code        int
	Out, Errors string
}

// Root returns a root command with commands below it.
func Root(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{Use: "berth"}
	cli.SetUpRoot(root)
	root.AddCommand(commands...)
	return root
}

// Execute executes a command line of root.
func Execute(ctx context.Context, root *cobra.Command, stdin string, args ...string) Result {
	var out, words bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&words)
	before := unix.Umask(0o022) // A command that calls KeepPrivate changes the umask of this process.
	err := root.ExecuteContext(ctx)
	unix.Umask(before)
	r := Result{Code: cli.ExitCode(err), Out: out.String(), Errors: words.String()}
	if err != nil {
		cli.PrintError(&words, err)
		r.Errors = words.String()
	}
	return r
}

// MustCluster serves a fake API, which client commands find by their variables.
func MustCluster(t *testing.T, routes map[string]http.HandlerFunc) {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, handle := range routes {
		mux.HandleFunc(pattern, handle)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("BERTH_ADDR", server.URL)
	t.Setenv("BERTH_TOKEN", "lk_1")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// Answer answers each request with body.
func Answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, body) //nolint:errcheck // The client may be gone.
	}
}

// RecordSent answers with body and stores the request's JSON in sent.
func RecordSent(t *testing.T, sent *map[string]any, body string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(sent); err != nil {
			t.Error(err)
		}
		Answer(body)(w, r)
	}
}

// CheckGolden compares got with the file testdata/NAME.txt.
func CheckGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("got\n%s\nwant (%v)\n%s", got, err, want)
	}
}

// MustBuild builds the program in dir and returns its path. It has no race
// detector, because some tests compare speeds. As make build does, make test has the
// program of supervisors inside.
func MustBuild(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "berth")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", tags,
		"-o", program, "berth/cmd/berth")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// Dependencies returns the packages that a build of the program for clients on a
// system has, one a line.
func Dependencies(t *testing.T, system string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "client", "berth/cmd/berth")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", system, err)
	}
	return string(out)
}
