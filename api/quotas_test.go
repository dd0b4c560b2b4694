package api_test

import (
	"slices"
	"strings"
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

// TestDeniedHardware checks what members see of hardware profiles that an operator denies or limits,
// and that work there is refused.
func TestDeniedHardware(t *testing.T) {
	w := newWorld(t)
	w.mustDo("POST", "/admin/quotas", rootToken, map[string]any{
		"org": "ada-lab", "hardware_profile": "A100", "allowed": false,
	}, nil)
	w.mustDo("POST", "/admin/quotas", rootToken, map[string]any{
		"org": "ada-lab", "hardware_profile": "t4.2x", "max_concurrent": 3,
	}, nil)
	var got wire.Quotas
	w.mustDo("GET", "/user/quotas", w.adaKey, nil, &got)
	for _, q := range got.Quotas {
		denied := strings.HasPrefix(q.HardwareProfile, "gpu.a100")
		if q.Allowed == denied || (q.MaxConcurrent == 3) != (q.HardwareProfile == "gpu.t4.2x") {
			t.Errorf("got %+v", q)
		}
	}
	limits := slices.DeleteFunc(got.Limits, func(l wire.Limit) bool { return l.Scope != "hardware_profile" })
	if len(limits) != 2 || *limits[0].Profile != "gpu.a100" || limits[0].Allowed || *limits[1].Profile != "gpu.t4.2x" ||
		!limits[1].Allowed || limits[1].MaxConcurrent != 3 || got.MaxGPUs != 10 {
		t.Errorf("the limits are %+v, and max_gpus is %d", limits, got.MaxGPUs)
	}
	var open wire.AvailableHardware
	w.mustDo("GET", "/user/quotas/available-hardware", w.adaKey, nil, &open)
	if slices.ContainsFunc(open.Profiles, func(name string) bool { return strings.HasPrefix(name, "gpu.a100") }) {
		t.Errorf("available are %v", open.Profiles)
	}
	w.want(403, "profile_denied", "POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "print()", "execution_type": "a100.2x",
	})
}
