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
	runs     = 61
	rounds   = 3 // On a machine that is never quiet.
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
	var ratio float64
	for range rounds {
		light, ours := quickest(t, bare, self)
		ratio = float64(ours) / float64(light)
		t.Logf("a bare Go program %v, a supervisor %v from exec to exit: %.2f times", light, ours, ratio)
		if ratio <= maxRatio || raceEnabled {
			return
		}
	}
	t.Errorf("a supervisor's start costs %.2f times a bare Go program's, want at most %.1f", ratio, maxRatio)
}

// quickest returns the shortest lives of both programs, which are the ones
// that no neighbour on the machine disturbed.
func quickest(t *testing.T, bare, self string) (light, ours time.Duration) {
	t.Helper()
	light, ours = time.Hour, time.Hour
	for range runs {
		light = min(light, took(t, exec.Command(bare), 0))
		supervise := exec.Command(self)
		supervise.Args, supervise.Env = []string{"berth", "supervise"}, []string{"GOMAXPROCS=2"}
		ours = min(ours, took(t, supervise, 2))
	}
	return light, ours
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
