package early_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/google/nftables"
	_ "github.com/prometheus/client_golang/prometheus"

	_ "berth/node/executor/early"
	_ "berth/node/executor/policy" // Some of what the node's binary drags along.
)

const (
	runs     = 101
	quiet    = 0 // Of the sorted times: the run that no neighbour disturbed.
	maxRatio = 3.0
)

// TestSupervisorStartsLight compares the start of a supervisor, out of a binary
// with big libraries, with that of a Go program that does nothing. Both are
// timed in turn, so that a busy machine slows both.
func TestSupervisorStartsLight(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "bare")
	if out, err := exec.Command("go", "build", "-o", bare, "./testdata/bare").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var light, ours []time.Duration
	for range runs {
		light = append(light, took(t, exec.Command(bare), 0))
		supervise := exec.Command(self)
		supervise.Args, supervise.Env = []string{"berth", "supervise"}, []string{"GOMAXPROCS=2"}
		ours = append(ours, took(t, supervise, 2))
	}
	slices.Sort(light)
	slices.Sort(ours)
	ratio := float64(ours[quiet]) / float64(light[quiet])
	t.Logf("a bare Go program %v, a supervisor %v from exec to exit: %.2f times", light[quiet], ours[quiet], ratio)
	if ratio > maxRatio && !raceEnabled {
		t.Errorf("a supervisor's start costs %.2f times a bare Go program's, want at most %.1f", ratio, maxRatio)
	}
}

// took returns how long the process lived, which ends with the code.
func took(t *testing.T, cmd *exec.Cmd, code int) time.Duration {
	t.Helper()
	start := time.Now()
	_ = cmd.Run() // Its code is checked.
	took := time.Since(start)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%v ended as %v", cmd.Args, cmd.ProcessState)
	}
	return took
}

// TestImportsAreLight holds what the start rests on: nothing but the standard
// library and our own light packages is imported.
func TestImportsAreLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "berth/node/executor/early").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") || slices.Contains([]string{"net", "net/http", "os/exec", "crypto/tls"}, name) {
			t.Errorf("package early imports %s", name)
		}
	}
}
