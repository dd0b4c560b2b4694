package early_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const starts = 101

// BenchmarkSupervisorStart compares the start of a supervisor, from the whole
// berth binary, with that of a Go program that does nothing. Unlike Berth, which
// needs a C library for NVML, that program links none. Both are built here, so
// that the race detector slows neither. They are timed in turn, so that a busy
// machine slows both. TestImportsAreLight keeps the start light.
func BenchmarkSupervisorStart(b *testing.B) {
	programs := []string{build(b, "./testdata/bare", "CGO_ENABLED=0"), build(b, "berth/cmd/berth")}
	for b.Loop() {
		bare, berth := quickest(b, programs)
		b.ReportMetric(float64(berth)/float64(bare), "bare-starts")
	}
}

// build builds the program and returns its file.
func build(t testing.TB, path string, env ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, path)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", path, err, out)
	}
	return file
}

// quickest returns the shortest run of each program: the one that other load on
// the machine disturbed least.
func quickest(t testing.TB, programs []string) (bare, berth time.Duration) {
	t.Helper()
	bare, berth = time.Hour, time.Hour
	for range starts {
		bare = min(bare, took(t, exec.CommandContext(t.Context(), programs[0]), 0))
		supervise := exec.CommandContext(t.Context(), programs[1])
		// No such attempt directory exists, so the supervisor exits at once.
		supervise.Args, supervise.Env = []string{"berth", "supervise", programs[1] + ".none"}, []string{"GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"}
		berth = min(berth, took(t, supervise, 1))
	}
	return bare, berth
}

// took returns how long the process ran. It must exit with the code.
func took(t testing.TB, cmd *exec.Cmd, code int) time.Duration {
	t.Helper()
	start := time.Now()
	_ = cmd.Run() // The exit code is checked below.
	took := time.Since(start)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%v ended as %v", cmd.Args, cmd.ProcessState)
	}
	return took
}

// TestImportsAreLight checks that the package depends only on the standard
// library and on light packages of Berth. It also refuses standard packages that
// import many others: path/filepath alone is a third of the start.
func TestImportsAreLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "berth/node/executor/early").Output()
	if err != nil {
		t.Fatal(err)
	}
	heavy := []string{"net", "net/http", "os/exec", "net/netip", "regexp", "crypto/tls", "path/filepath"}
	for _, name := range strings.Fields(string(out)) {
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") || slices.Contains(heavy, name) {
			t.Errorf("package early imports %s", name)
		}
	}
}
