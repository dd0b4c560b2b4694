package timerslack

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMonitor checks that the thread which the package takes for the runtime's monitor is the
// one that sleeps again and again while a goroutine computes, and has its slack set.
func TestMonitor(t *testing.T) {
	tid, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	asleep := 0
	for range 20_000 {
		if sleeps(t, tid) {
			asleep++
		}
	}
	if asleep < 100 { // Usually in two of three.
		t.Fatalf("the thread sleeps in %d of 20,000 looks at it, so it is not the monitor", asleep)
	}
	if err := OfMonitor(Node); errors.Is(err, fs.ErrPermission) {
		t.Skip("needs CAP_SYS_NICE")
	} else if err != nil {
		t.Fatal(err)
	}
	if got := slack(t, tid); got != Node {
		t.Errorf("the monitor has a slack of %v, want %v", got, Node)
	}
	if err := OfMonitor(Default); err != nil {
		t.Error(err)
	}
}

// sleeps reports whether a thread of this process is in nanosleep, as no thread of the runtime but
// its monitor is for long. The call keeps the runtime busy.
func sleeps(t *testing.T, tid string) bool {
	t.Helper()
	call, err := os.ReadFile("/proc/self/task/" + tid + "/syscall")
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(string(call), " ")
	return number == strconv.Itoa(syscall.SYS_NANOSLEEP)
}

// TestThread checks that a process has the slack of the thread that starts it, and that the
// thread returns to what it had.
func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := strconv.Itoa(syscall.Gettid())
	before := slack(t, tid)
	OfThread(Supervisor)
	defer OfThread(0)
	out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, string(out)); got != Supervisor {
		t.Errorf("a process has a slack of %v, want %v", got, Supervisor)
	}
	OfThread(0)
	if after := slack(t, tid); after != before {
		t.Errorf("the thread has a slack of %v, had %v", after, before)
	}
}

// slack returns the slack of a thread.
func slack(t *testing.T, tid string) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/" + tid + "/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) time.Duration {
	t.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}
