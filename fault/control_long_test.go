//go:build long

package fault_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/fault"
)

var allFlag = flag.Bool("all", false, "plant every bug, instead of a few that chance picks")

// The number of bugs planted without -all. Each recompiles a package and its
// dependencies.
const (
	sample    = 3
	simulated = 1
)

// TestPlantedBugsAreFound checks that passing tests can fail: with each bug
// planted, the test that its row names reports the broken guarantee. With -all
// each test first passes without the bug, in the same way. Otherwise its own
// package runs it.
func TestPlantedBugsAreFound(t *testing.T) {
	plants := slices.DeleteFunc(fault.Plants(), func(p fault.Plant) bool {
		return p.Test == "" || !*allFlag && wedges(p.Bug)
	})
	if !*allFlag {
		plants = some(t, plants, sample)
	}
	for _, p := range plants {
		t.Run(string(p.Bug), func(t *testing.T) {
			dir, name, _ := strings.Cut(p.Test, " ")
			if *allFlag {
				out, err := control(t, dir, name, "")
				if err != nil || !strings.Contains(out, "--- PASS: "+name) {
					t.Fatalf("without it %s does not pass: %v\n%s", p.Test, err, out)
				}
			}
			out, err := control(t, dir, name, p.Bug)
			hung := wedges(p.Bug) && strings.Contains(out, "panic: test timed out") && strings.Contains(out, "\t"+name+" (")
			_, failed := errors.AsType[*exec.ExitError](err)
			if !failed || !hung && !strings.Contains(out, "--- FAIL: "+name) || !strings.Contains(out, p.Says) {
				t.Errorf("%s does not find it, or does not say %q: %v\n%s", p.Test, p.Says, err, out)
			}
		})
	}
}

// some returns n random bugs.
func some(t *testing.T, plants []fault.Plant, n int) []fault.Plant {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d chooses %d of %d bugs; -all tries all", seed, n, len(plants))
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(plants), func(i, j int) { plants[i], plants[j] = plants[j], plants[i] })
	return plants[:n]
}

// wedges reports whether a cluster with the bug may hang at its end, after the
// test has reported it. That takes minutes.
func wedges(bug fault.Bug) bool { return bug == fault.PipelinedLog }

// control runs one test of a package in the parent directory, with or without a
// bug.
func control(t *testing.T, dir, name string, bug fault.Bug) (string, error) {
	t.Helper()
	limit := "-timeout=5m"
	if wedges(bug) {
		limit = "-timeout=2m"
	}
	return planted(t, bug, "go", "test", "-v", "-buildvcs=false", "-count=1", limit,
		"-tags", "faults,long", "-run", "^"+name+"$", dir)
}

// planted runs a command in the parent directory, with or without a bug.
func planted(t *testing.T, bug fault.Bug, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "BERTH_PLANT="+string(bug))
	// Some tests start processes. The group ends with the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSimulationFindsPlantedBugs plants each bug whose code the simulation
// runs. With fresh seeds an invariant fails within a minute of processor time.
// Without the bug all hold on the same seeds.
func TestSimulationFindsPlantedBugs(t *testing.T) {
	plants := slices.DeleteFunc(fault.Plants(), func(p fault.Plant) bool { return !p.Simulated })
	if !*allFlag {
		plants = some(t, plants, simulated)
	}
	program := filepath.Join(t.TempDir(), "dst.test")
	out, err := planted(t, "", "go", "test", "-buildvcs=false", "-c", "-tags", "faults,long", "-o", program, "./bench/dst")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	violation := regexp.MustCompile(`seed (\d+), at .*`)
	for _, p := range plants {
		t.Run(string(p.Bug), func(t *testing.T) {
			first := rand.Uint64()>>1 + 1 // Leaves seeds above it.
			search := func(bug fault.Bug, histories uint64, limit time.Duration) (string, error) {
				return planted(t, bug, program, "-test.v", "-test.run=^TestInvariantsHold$", "-dst.time", limit.String(),
					"-dst.seed", strconv.FormatUint(first, 10), "-dst.histories", strconv.FormatUint(histories, 10))
			}
			out, err := search(p.Bug, 1000, time.Minute)
			found := violation.FindStringSubmatch(out)
			if _, failed := errors.AsType[*exec.ExitError](err); !failed || found == nil {
				t.Fatalf("seeds from %d on do not find it: %v\n%s", first, err, out)
			}
			t.Log(found[0])
			last, err := strconv.ParseUint(found[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := search("", last-first+1, time.Hour); err != nil {
				t.Errorf("without it the seeds from %d to %d do not hold: %v\n%s", first, last, err, out)
			}
		})
	}
}
