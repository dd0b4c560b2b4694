package boottime_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"berth/boottime"
)

// TestNow compares the clock with the kernel's uptime, which counts sleep too.
func TestNow(t *testing.T) {
	before := boottime.Now()
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(data), &seconds); err != nil {
		t.Fatal(err)
	}
	uptime := time.Duration(seconds * float64(time.Second))
	const tick = 10 * time.Millisecond // The resolution of /proc/uptime.
	if after := boottime.Now(); uptime < before-tick || uptime > after+tick {
		t.Errorf("the machine is up for %v, the clock says %v to %v", uptime, before, after)
	}
}
