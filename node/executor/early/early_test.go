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
// berth binary and from its own program, with that of a Go program that does nothing.
// All are built here, so that the race detector slows none. They are timed in turn, so
// that a busy machine slows all. TestImportsAreLight keeps the start light.
func BenchmarkSupervisorStart(b *testing.B) {
	bare := build(b, "./testdata/bare", "CGO_ENABLED=0")
	whole, own := build(b, "berth/cmd/berth"), build(b, "berth/cmd/berth-supervisor", "CGO_ENABLED=0")
	for b.Loop() {
		times := quickest(b, bare, whole, own)
		b.ReportMetric(float64(times[1])/float64(times[0]), "bare-starts/whole")
		b.ReportMetric(float64(times[2])/float64(times[0]), "bare-starts/own")
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

// quickest returns the shortest run of the bare program and of each program of supervisors: the
// one that other load on the machine disturbed least.
func quickest(t testing.TB, bare string, programs ...string) []time.Duration {
	t.Helper()
	times := slices.Repeat([]time.Duration{time.Hour}, 1+len(programs))
	for range starts {
		times[0] = min(times[0], took(t, exec.CommandContext(t.Context(), bare), 0))
		for i, program := range programs {
			supervise := exec.CommandContext(t.Context(), program)
			// No such attempt directory exists, so the supervisor exits at once.
			supervise.Args, supervise.Env = []string{"berth", "supervise", program + ".none"}, []string{"GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"}
			times[i+1] = min(times[i+1], took(t, supervise, 1))
		}
	}
	return times
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

// TestImportsAreLight checks that the package, and the program of supervisors, depend only on the standard
// library and on light packages of Berth. It also refuses standard packages that
// import many others: path/filepath alone is a third of the start.
func TestImportsAreLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "berth/node/executor/early", "berth/cmd/berth-supervisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	heavy := []string{"net", "net/http", "os/exec", "net/netip", "regexp", "crypto/tls", "path/filepath"}
	for _, name := range strings.Fields(string(out)) {
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") || slices.Contains(heavy, name) {
			t.Errorf("supervisors import %s", name)
		}
	}
}
