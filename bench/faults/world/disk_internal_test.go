package world

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHolders finds the users of a mount that all have and of one that none
// has.
func TestHolders(t *testing.T) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc", &stat); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	self := strconv.Itoa(os.Getpid()) + " "
	if !slices.ContainsFunc(holders(stat.Dev), func(h string) bool {
		return strings.HasPrefix(h, self) && strings.Contains(h, "mount /proc") && strings.Contains(h, " /proc/uptime")
	}) {
		t.Error("this process is not among those that have /proc mounted and open")
	}
	if found := holders(unix.Mkdev(4095, 1)); len(found) > 0 {
		t.Errorf("%q have what is not mounted", found)
	}
}
