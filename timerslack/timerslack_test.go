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
// one that sleeps again and again while a goroutine computes, and has its slack set, alone.
func TestMonitor(t *testing.T) {
	tids, err := threads()
	if err != nil {
		t.Fatal(err)
	}
	const enough = 100
	asleep := 0
	for looks := 0; asleep < enough; looks++ {
		if looks == 100_000 { // Usually the monitor sleeps in two of three.
			t.Fatalf("the thread sleeps in %d of %d looks at it, so it is not the monitor", asleep, looks)
		}
		if sleeps(t, tids[0]) {
			asleep++
		}
	}
	runtime.LockOSThread() // As one that the monitor has started.
	defer runtime.UnlockOSThread()
	OfThread(Node)
	defer OfThread(Default)
	own := strconv.Itoa(syscall.Gettid())
	switch err := OfMonitor(Node); {
	case errors.Is(err, fs.ErrPermission):
		t.Skip("needs CAP_SYS_NICE")
	case err != nil:
		t.Fatal(err)
	}
	if got := slack(t, tids[0]); got != Node {
		t.Errorf("the monitor has a slack of %v, want %v", got, Node)
	}
	if got := slack(t, own); got != Default && own != strconv.Itoa(os.Getpid()) {
		t.Errorf("another thread has a slack of %v, want %v", got, Default)
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

// TestThread checks that a process has the slack of the thread that starts it.
func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	OfThread(Supervisor)
	defer OfThread(Default)
	out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, string(out)); got != Supervisor {
		t.Errorf("a process has a slack of %v, want %v", got, Supervisor)
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
