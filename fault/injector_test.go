package fault

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// twoPoints returns a point of each kind in the list.
func twoPoints(t *testing.T) (plain, fails string) {
	t.Helper()
	for _, p := range Points() {
		if p.Fails {
			fails = p.Name
		} else {
			plain = p.Name
		}
	}
	if plain == "" || fails == "" {
		t.Fatal("the list lacks a kind of point")
	}
	return plain, fails
}

// mustInject returns the injector of an environment.
func mustInject(t *testing.T, env map[string]string) *injector {
	t.Helper()
	i, err := newInjector(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestActions(t *testing.T) {
	plain, fails := twoPoints(t)
	i := mustInject(t, map[string]string{faultsVariable: plain + "=exit; " + fails + "=error:ENOSPC"})
	codes := []int{}
	i.exit = func(code int) { codes = append(codes, code) }
	if err := i.hit(plain); err != nil || !slices.Equal(codes, []int{ExitCode}) {
		t.Errorf("exit gave %v and ended with %v", err, codes)
	}
	if err := i.hit(fails); !errors.Is(err, ErrInjected) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error:ENOSPC gave %v", err)
	}
	i = mustInject(t, map[string]string{faultsVariable: plain + "=sleep:2s\n" + fails + "=error:EIO"})
	var slept time.Duration
	i.sleep = func(d time.Duration) { slept += d }
	if err := i.hit(plain); err != nil || slept != 2*time.Second {
		t.Errorf("sleep gave %v after %v", err, slept)
	}
	if err := i.hit(fails); !errors.Is(err, syscall.EIO) {
		t.Errorf("error:EIO gave %v", err)
	}
	i = mustInject(t, map[string]string{faultsVariable: plain + "=panic;" + fails + "=error"})
	if err := i.hit(fails); !errors.Is(err, ErrInjected) || errors.Is(err, syscall.EIO) {
		t.Errorf("error gave %v", err)
	}
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, ErrInjected) {
			t.Errorf("panic gave %v", err)
		}
	}()
	_ = i.hit(plain)
}

// TestNthHitCounts checks that a rule with a number applies once, and one
// without applies each time.
func TestNthHitCounts(t *testing.T) {
	_, fails := twoPoints(t)
	for text, want := range map[string][]bool{
		"error@1": {true, false, false}, "error@2": {false, true, false}, "error": {true, true, true},
	} {
		i := mustInject(t, map[string]string{faultsVariable: fails + "=" + text})
		for n, failed := range want {
			if err := i.hit(fails); (err != nil) != failed {
				t.Errorf("%s, hit %d: %v", text, n+1, err)
			}
		}
	}
}

func TestWrongNamesAreRefused(t *testing.T) {
	plain, fails := twoPoints(t)
	for name, env := range map[string]map[string]string{
		"point":        {faultsVariable: "no.such.point=exit"},
		"action":       {faultsVariable: plain + "=explode"},
		"no action":    {faultsVariable: plain},
		"errno":        {faultsVariable: fails + "=error:EPERM"},
		"duration":     {faultsVariable: plain + "=sleep:long"},
		"count":        {faultsVariable: plain + "=exit@0"},
		"cannot fail":  {faultsVariable: plain + "=error"},
		"clock":        {faultsVariable: "clock=noon"},
		"snapshots":    {faultsVariable: "snapshot_every=often"},
		"bug":          {plantVariable: "beetle"},
		"file is none": {fileVariable: t.TempDir()},
	} {
		if _, err := newInjector(func(name string) string { return env[name] }); err == nil {
			t.Errorf("%s: %v is accepted", name, env)
		}
	}
	i := mustInject(t, map[string]string{faultsVariable: " # a comment\n;; " + plain + " = exit@1;clock=-1h;snapshot_every=64"})
	if i.offset() != -time.Hour || len(i.armed.rules) != 1 || i.snapshotEvery() != 64 {
		t.Errorf("%+v was read", i.armed)
	}
}

// TestFileIsReadAgain checks that rules change in a running process, that an
// unchanged rule keeps its count, and that the log has the actions.
func TestFileIsReadAgain(t *testing.T) {
	_, fails := twoPoints(t)
	file, log := filepath.Join(t.TempDir(), "rules"), filepath.Join(t.TempDir(), "log")
	i := mustInject(t, map[string]string{fileVariable: file, logVariable: log, faultsVariable: fails + "=error@3"})
	now := time.Now()
	i.now = func() time.Time { return now }
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(rereadEvery)
	}
	if err := i.hit(fails); err != nil || i.offset() != 0 {
		t.Errorf("without the file: %v, %v", err, i.offset())
	}
	write("clock=90m")
	if err := i.hit(fails); err != nil || i.offset() != 90*time.Minute {
		t.Errorf("with a clock: %v, %v", err, i.offset())
	}
	if err := i.hit(fails); err == nil {
		t.Error("the third hit does not count as that")
	}
	write(fails + "=error")
	if err := i.hit(fails); err == nil || i.offset() != 0 {
		t.Errorf("with another rule: %v, %v", err, i.offset())
	}
	pid := strconv.Itoa(os.Getpid())
	want := pid + " " + fails + " reached\n" + pid + " " + fails + " error@3\n" + pid + " " + fails + " error\n"
	if got, err := os.ReadFile(log); err != nil || string(got) != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
	write("nonsense")
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("a file with nonsense gave %v", err)
		}
	}()
	_ = i.hit(fails)
}
