package node

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/fsm"
)

// TestMemoryFollowsTheState checks that a large state has the memory that it takes
// several times over, and a small one little more than what clients may hold.
func TestMemoryFollowsTheState(t *testing.T) {
	const finished, entry = 1 << 10, 200 // About what one takes, in bytes.
	if got := memoryLimit(fsm.Summary{}); got > 128<<20 {
		t.Errorf("an empty state has %d MiB", got>>20)
	}
	large := fsm.Summary{Executions: 1_000_000, Entries: 2_000_000}
	if got, want := memoryLimit(large), int64(4*(1_000_000*finished+2_000_000*entry)); got < want {
		t.Errorf("a large state has %d MiB, want %d", got>>20, want>>20)
	}
}

// TestBusyNodesLeaveMoreGarbage checks that a node with little in use collects less often
// while it leaves much garbage, and as usual at rest.
func TestBusyNodesLeaveMoreGarbage(t *testing.T) {
	const mib = 1 << 20
	p := gcTarget{percent: restPercent}
	for i, step := range []struct {
		after time.Duration
		live  uint64
		want  int
		busy  bool
	}{
		{2 * time.Second, 20 * mib, restPercent, false},
		{time.Second, 20 * mib, 240, true},
		{2 * time.Second, 20 * mib, 240, true},
		{2 * time.Second, 2 * mib, busyPercent, true},
		{4 * time.Second, 40 * mib, 120, true},
		{1300 * time.Millisecond, 40 * mib, restPercent, false},
		{0, 200 * mib, restPercent, true},
		{0, 0, busyPercent, true},
		{time.Minute, 0, restPercent, false},
	} {
		before := p.percent
		if changed := p.follow(step.after, step.live); p.percent != step.want || changed != (before != step.want) {
			t.Errorf("step %d: %d percent, changed: %t, want %d", i, p.percent, changed, step.want)
		}
		if p.busy != step.busy {
			t.Errorf("step %d: busy: %t", i, p.busy)
		}
	}
	if p.follow(0, mib); !p.rest() || p.percent != restPercent || p.busy || p.rest() {
		t.Errorf("at rest it has %d percent", p.percent)
	}
}

// TestCollectionsAreNoticed checks that garbage collections are signaled.
func TestCollectionsAreNoticed(t *testing.T) {
	collected := make(chan struct{}, 1)
	awaitGC(t.Context(), collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}

// TestBusyHeapIsInHugePages checks that new objects lie in the area, and that the kernel
// maps it as asked.
func TestBusyHeapIsInHugePages(t *testing.T) {
	h := reserveHeap()
	if !h.useHuge(true) {
		if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err == nil {
			t.Fatal("the kernel refuses huge pages, but has them")
		}
		t.Skip("the kernel has no huge pages")
	}
	size, flags := mapping(t, h.start)
	if !slices.Contains(flags, "hg") || size < heapBytes {
		t.Errorf("the kernel has %d MiB mapped with the flags %v", size>>20, flags)
	}
	h.useHuge(false)
	if _, flags := mapping(t, h.start); !slices.Contains(flags, "nh") {
		t.Errorf("at rest the flags are %v", flags)
	}
	var objects [][]byte
	inside := false
	for len(objects) < 64 && !inside { // The first ones may fill what earlier tests have left.
		object := make([]byte, heapBytes/8)
		at := addressOf(object)
		inside = at+uintptr(len(object)) > h.start && at < h.start+heapBytes
		objects = append(objects, object)
	}
	if !inside {
		t.Errorf("no new object lies in the area")
	}
	runtime.KeepAlive(objects)
}

// mapping returns the bytes and the flags of the mapping of an address; see
// proc_pid_smaps(5).
func mapping(t *testing.T, address uintptr) (size uintptr, flags []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(data)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside, size = from <= address && address < to, to-from
		} else if rest, found := strings.CutPrefix(line, "VmFlags:"); found && inside {
			return size, strings.Fields(rest)
		}
	}
	t.Fatal("no mapping has the address")
	return 0, nil
}
