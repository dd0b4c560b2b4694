package world

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestHolders looks for who has what everybody has mounted, and what nobody has.
func TestHolders(t *testing.T) {
	self := strconv.Itoa(os.Getpid()) + " "
	if !slices.ContainsFunc(holders("/proc"), func(h string) bool { return strings.HasPrefix(h, self) }) {
		t.Error("this process is not among those that have /proc")
	}
	if found := holders(t.TempDir()); len(found) > 0 {
		t.Errorf("%q have what is not mounted", found)
	}
}
