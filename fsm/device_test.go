package fsm_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// TestMemoryIsNeverOversold checks in random histories that the shares of a
// device never hold more memory than it has, that each share has memory in
// proportion to its thousandths, and that each reports its isolation.
func TestMemoryIsNeverOversold(t *testing.T) {
	shared, sliced := 0, 0
	for seed := range uint64(20) {
		h := newHistorian(t, seed)
		for range 300 {
			h.step()
			for n := range h.view().Nodes() {
				held := make(map[compute.GPUID]int64)
				for _, w := range h.view().Work(n.ID) {
					for i, share := range w.Attempt.GPUs {
						held[share.GPU] += share.VRAMMiB
						if share.Isolation != compute.IsolationSimulated ||
							share.VRAMMiB != w.GPUs[i].VRAMMiB*int64(share.Milli)/compute.WholeGPU {
							t.Fatalf("seed %d: share %+v of %+v", seed, share, w.GPUs[i])
						}
						if share.Milli < compute.WholeGPU {
							shared++
						}
						if w.GPUs[i].Slice() != "" {
							sliced++
						}
					}
				}
				for _, g := range n.GPUs {
					if held[g.ID] > g.VRAMMiB {
						t.Fatalf("seed %d: %d MiB of the %d MiB of %s are given", seed, held[g.ID], g.VRAMMiB, g.ID)
					}
				}
			}
		}
	}
	if shared == 0 || sliced == 0 {
		t.Errorf("%d shares and %d slices were seen", shared, sliced)
	}
}

func TestResolveMIG(t *testing.T) {
	w := newWorld(t)
	// 32 vCPUs and 256 GiB over four GPUs, 8 and 64 each.
	w.addNode("n4", "a100.mig_1g_5gb", "a100.mig_3g_20gb", "h100.mig_1g_10gb", "a30.mig_1g_6gb")
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"a30": 100}})
	price := func(name string) compute.Price {
		_, _, p, err := w.view().Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := []struct {
		profile      string
		vcpu, memory int64
		price        compute.Price
	}{
		{"a100.mig_1g_5gb", 8000 / 7, 65536 / 7, (price("a100") + 6) / 7},
		{"GPU.A100.MIG_3G_20GB", 3 * 8000 / 7, 3 * 65536 / 7, (3*price("a100") + 6) / 7},
		{"a30.mig_1g_6gb", 2000, 65536 / 4, 25},
	}
	for _, test := range tests {
		t.Run(test.profile, func(t *testing.T) {
			p, r, price, err := w.view().Resolve(test.profile)
			want := compute.Request{
				GPUType: p.GPUType, GPUs: 1, MilliGPU: 1000, MIG: p.MIG, VCPUMilli: test.vcpu, MemoryMiB: test.memory,
			}
			if err != nil || !reflect.DeepEqual(r, want) || price != test.price {
				t.Errorf("got %+v at %d, %v; want %+v at %d", r, price, err, want, test.price)
			}
		})
	}
	for profile, why := range map[string]string{
		"a100.mig_2g_10gb": `no node offers MIG slices 2g.10gb of "a100"`,
		"t4.mig_1g_5gb":    `no node offers MIG slices 1g.5gb of "t4"`,
		"a30":              `all GPUs of type "a30" are in MIG mode`,
	} {
		if _, _, _, err := w.view().Resolve(profile); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", profile, err, why)
		}
	}
	if types := w.view().GPUTypes(); !slices.Contains(types, "a100.mig_1g_5gb") || slices.Contains(types, "a30") {
		t.Errorf("kinds are %v", types)
	}
	_, _, _, err := w.view().Resolve("gpu.h100.4x")
	if err == nil || !strings.Contains(err.Error(), "gpu.l40s.4x") || strings.Contains(err.Error(), "b.4x") {
		t.Errorf("slices come one at a time: %v", err)
	}
	profiles := w.view().Profiles()
	if !slices.Contains(profiles, "gpu.a100.mig_1g_5gb") || slices.Contains(profiles, "gpu.a100.mig_1g_5gb.2x") {
		t.Errorf("profiles are %v", profiles)
	}
}

// TestSlicesAreSeparateKinds checks that the state places no work on a device of
// another kind than requested, whatever a plan contains.
func TestSlicesAreSeparateKinds(t *testing.T) {
	w := newWorld(t)
	node := w.addNode("n4", "a100.mig_3g_20gb", "a100", "a100.mig_7g_40gb")
	tests := []struct {
		profile, gpu string
		placed       bool
	}{
		{"a100", "SIM-n4-0", false},
		{"a100", "SIM-n4-0-1", false},
		{"a100", "SIM-n4-1", true},
		{"a100.mig_3g_20gb", "SIM-n4-0", false},
		{"a100.mig_3g_20gb", "SIM-n4-1", false},
		{"a100.mig_3g_20gb", "SIM-n4-2-1", false},
		{"a100.mig_3g_20gb", "SIM-n4-0-2", true},
		{"a100.mig_7g_40gb", "SIM-n4-2-1", true},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.profile, " on ", test.gpu), func(t *testing.T) {
			r := w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{Assignments: []compute.Assignment{{
				Execution: w.submit(test.profile), Node: node,
				GPUs: []compute.GPUShare{{GPU: compute.GPUID(test.gpu), Milli: compute.WholeGPU}},
			}}}})
			if placed := r.Count == 1; placed != test.placed {
				t.Errorf("placed is %v", placed)
			}
		})
	}
}

// TestSelectionOverSlices checks that a GPU selection treats MIG slices as
// separate kinds, named in any case.
func TestSelectionOverSlices(t *testing.T) {
	w := newWorld(t)
	w.addNode("n4", "a100.mig_3g_20gb")
	id := w.selection(func(e *compute.Execution) {
		e.Selection.GPUTypes = []string{"A100", "GPU.A100.MIG_3G_20GB", "a100.mig_3g_20gb"}
	})
	if got := w.get(id).Selection.GPUTypes; !slices.Equal(got, []string{"a100", "a100.mig_3g_20gb"}) {
		t.Errorf("it tries %v", got)
	}
}

func TestInventoryOfSlicesIsChecked(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(parent, slice *compute.GPU)
	}{
		{"parent unknown", func(_, slice *compute.GPU) { slice.Parent = "SIM-n9-0" }},
		{"no parent", func(_, slice *compute.GPU) { slice.Parent = "" }},
		{"parent not sliced", func(parent, _ *compute.GPU) { parent.MIG = compute.MIGDisabled }},
		{"of another type", func(_, slice *compute.GPU) { slice.Type = "h100" }},
		{"no slice's name", func(_, slice *compute.GPU) { slice.MIG = "half" }},
		{"parent of a whole one", func(_, slice *compute.GPU) { slice.MIG = "" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			inv := inventory(w.node("n2").ID, "n2", 2, "a100.mig_3g_20gb")
			test.spoil(&inv.GPUs[0], &inv.GPUs[1])
			w.refused(command.SetInventory{Term: w.term, Inventory: inv}, compute.CodeInvalid, "inventory")
		})
	}
}
