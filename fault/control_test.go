package fault_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/fault"
)

var allFlag = flag.Bool("all", false, "plant every bug, instead of a few that chance picks")

// sample is how many bugs are planted without -all: each compiles a package and
// what it needs once more.
const sample = 4

// TestPlantedBugsAreFound holds that tests which pass can fail: with each bug
// planted, the test that its row names has to.
func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles several packages again")
	}
	plants := slices.DeleteFunc(fault.Plants(), func(p fault.Plant) bool { return p.Test == "" })
	if !*allFlag {
		seed := rand.Uint64()
		t.Logf("seed %d chooses %d of %d bugs; -all tries all", seed, sample, len(plants))
		rng := rand.New(rand.NewPCG(seed, 0))
		rng.Shuffle(len(plants), func(i, j int) { plants[i], plants[j] = plants[j], plants[i] })
		plants = plants[:sample]
	}
	for _, p := range plants {
		t.Run(string(p.Bug), func(t *testing.T) {
			dir, name, _ := strings.Cut(p.Test, " ")
			out, err := control(t, dir, name, p.Bug)
			hung := wedges(p.Bug) && strings.Contains(out, "panic: test timed out") && strings.Contains(out, "\t"+name+" (")
			found := hung || strings.Contains(out, "--- FAIL: "+name)
			if _, failed := errors.AsType[*exec.ExitError](err); !failed || !found {
				t.Errorf("%s does not find it: %v\n%s", p.Test, err, out)
			}
		})
	}
}

// wedges reports whether a cluster with the bug may not end either, once the test
// has seen it.
func wedges(bug fault.Bug) bool { return bug == fault.PipelinedLog }

// control executes one test of a package in the parent directory with a bug.
func control(t *testing.T, dir, name string, bug fault.Bug) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	limit := "-timeout=5m"
	if wedges(bug) {
		limit = "-timeout=45s"
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-count=1", limit,
		"-tags", "faults", "-run", "^"+name+"$", dir)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "BERTH_PLANT="+string(bug))
	// Some tests start processes of their own: all of them end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
