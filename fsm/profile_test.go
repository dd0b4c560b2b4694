package fsm_test

import (
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// TestNeverFitsNamesAlternatives checks that a profile that no node could host
// is refused at once with alternatives, and that a profile that only a down or
// drained node could host is accepted.
func TestNeverFitsNamesAlternatives(t *testing.T) {
	w := newWorld(t)
	for profile, want := range map[string][]string{
		"gpu.t4.8x":  {"never_fits", "the most t4 GPUs on one node are 4", "gpu.t4.4x would fit"},
		"gpu.t5":     {"unknown_profile", `was "t4" meant?`},
		"gpu.zzz":    {"unknown_profile", "valid profiles"},
		"cpu.4096x":  {"never_fits", "is the largest that would"},
		"gpu.t4.-1x": {"unknown_profile", "neither a count"},
		"gpu.t4.0x":  {"unknown_profile", "neither a count"},
		"gpu.t4.16x": {"unknown_profile", "1x, 2x, 4x or 8x"},
	} {
		_, _, _, err := w.view().Resolve(profile)
		text := compute.MessageOf(err)
		if refused, ok := err.(*compute.Error); ok { //nolint:errorlint // Resolve does not wrap it.
			text += " " + refused.Detail
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s is refused with %q, which lacks %q", profile, text, part)
			}
		}
	}
	if _, _, _, err := w.view().Resolve("GPU.T4.4X"); err != nil {
		t.Errorf("in capitals it is refused: %v", err)
	}
	w.must(command.SetNodeState{Term: 1, Node: w.node("n3").ID, State: compute.NodeDown})
	if w.submit("t4.4x").IsZero() {
		t.Error("what a node that is down could host is refused")
	}
}

// TestLargestCPUProfileIsOfOneNode checks that vCPUs of one node and memory of
// another do not add up to a host.
func TestLargestCPUProfileIsOfOneNode(t *testing.T) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	for i, name := range []string{"n1", "n2"} {
		w.addNode(name)
		inv := inventory(w.node(name).ID, name, 2)
		inv.VCPUMilli, inv.MemoryMiB = []int64{64000, 4000}[i], []int64{8 << 10, 256 << 10}[i]
		w.must(command.SetInventory{Term: 1, Inventory: inv})
	}
	for profile, fits := range map[string]bool{"cpu.4x": true, "cpu.5x": false, "cpu.32x": false} {
		if _, _, _, err := w.view().Resolve(profile); (err == nil) != fits {
			t.Errorf("%s: %v", profile, err)
		}
	}
}
