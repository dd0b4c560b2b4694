package api_test

import (
	"slices"
	"testing"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// TestMaxGPUs checks the GPU limit that an organization sees: GPUs that take
// work, slices by their part of the device, and one where a share is allowed.
func TestMaxGPUs(t *testing.T) {
	w := newWorld(t)
	holds := func(want int) {
		t.Helper()
		var got wire.Quotas
		if w.mustDo("GET", "/user/quotas", w.adaKey, nil, &got); got.MaxGPUs != want {
			t.Errorf("max_gpus is %d, want %d", got.MaxGPUs, want)
		}
	}
	holds(14)
	sliced := compute.Inventory{Node: nodeID(2), Version: 2, VCPUMilli: 32_000, MemoryMiB: 256 << 10}
	sliced.GPUs = append(sliced.GPUs, compute.GPU{ID: "G", Type: "a100", MIG: compute.MIGEnabled})
	for _, id := range []compute.GPUID{"M0", "M1", "M2", "M3", "M4", "M5", "M6"} {
		sliced.GPUs = append(sliced.GPUs, compute.GPU{ID: id, Type: "a100", MIG: "1g_10gb", Parent: "G"})
	}
	w.must(command.SetInventory{Term: 1, Inventory: sliced})
	holds(11)
	w.must(command.SetNodeState{Term: 1, Node: nodeID(3), State: compute.NodeDown})
	holds(7)
	w.must(command.SetQuota{Actor: command.Actor{Root: true}, Quota: compute.Quota{Org: w.org("ada-lab"), MilliGPU: 500}})
	holds(1)
}

// TestAvailableHardware names the profiles of nodes that take new work.
func TestAvailableHardware(t *testing.T) {
	w := newWorld(t)
	names := func() []string {
		t.Helper()
		var got wire.AvailableHardware
		w.mustDo("GET", "/user/quotas/available-hardware", w.adaKey, nil, &got)
		return got.Profiles
	}
	all := w.machine.View().Profiles()
	if got := names(); !slices.Equal(got, all) {
		t.Errorf("all nodes are up: %v, want %v", got, all)
	}
	for n := range w.machine.View().Nodes() {
		w.must(command.SetNodeState{Term: 1, Node: n.ID, State: compute.NodeDown})
	}
	if got := names(); len(got) != 0 {
		t.Errorf("all nodes are down: %v", got)
	}
}
