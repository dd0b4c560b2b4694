package fsm_test

import (
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// TestLeastGPUMemory checks which GPUs an execution gets that asks for memory:
// by their nominal size, each alone, in proportion for shares.
func TestLeastGPUMemory(t *testing.T) {
	w := newestWorld(t)
	n4 := w.addNode("n4", "a100", "a100")
	memory := func(mib ...int64) {
		inv := inventory(n4, "n4", uint64(w.now)+uint64(len(w.entries)), "a100", "a100")
		for i := range inv.GPUs {
			inv.GPUs[i].VRAMMiB = mib[i]
		}
		w.must(command.SetInventory{Term: w.term, Inventory: inv})
	}
	memory(40960, 81559) // An 80 GB card reports less.
	ask := func(profile string, gib int64) (compute.Request, *compute.Error) {
		c := w.python(profile)
		c.Op, c.Execution.MinVRAMMiB = command.Op{}, gib<<10
		r := w.do(c)
		if r.Refusal != nil {
			return compute.Request{}, r.Refusal
		}
		return w.get(r.Execution).Request, nil
	}
	for _, test := range []struct {
		profile string
		gib     int64
		want    string // "" for accepted.
	}{
		{"a100", 80, ""},
		{"a100", 16, ""},
		{"a100.2x", 40, ""},
		{"a100.500m", 40, ""},
		{"t4", 16, ""},
		{"a100.500m", 48, "fits on no node"},
		{"a100.2x", 48, "no GPU type has that much memory"},
		{"t4", 24, "gpu.a100 would fit"},
		{"h100.2x", 40, "gpu.a100.2x would fit"},
		{"a100", 141, "no GPU type"},
		{"cpu", 8, "name a GPU type"},
		{"t4", -1, "min_vram_gb is 0"},
	} {
		r, refusal := ask(test.profile, test.gib)
		switch {
		case test.want == "" && (refusal != nil || r.MinVRAMMiB < test.gib<<10):
			t.Errorf("%s with %d GiB: %+v, %v", test.profile, test.gib, r, refusal)
		case test.want != "" && (refusal == nil || !strings.Contains(refusal.Message, test.want)):
			t.Errorf("%s with %d GiB: %v, want %q", test.profile, test.gib, refusal, test.want)
		}
	}
	id := w.submit("a100", func(e *compute.Execution) { e.MinVRAMMiB = 80 << 10 })
	small := w.assign(id, "n4")
	if len(small.GPUs) != 1 || small.GPUs[0].GPU != "SIM-n4-1" {
		t.Fatalf("it gets %+v, want the larger card", small.GPUs)
	}
	small.GPUs[0].GPU = "SIM-n4-0"
	plan := command.CommitPlan{Term: w.term, Plan: compute.Plan{Assignments: []compute.Assignment{small}}}
	if r := w.must(plan); r.Count != 0 {
		t.Error("placed on a card with too little memory")
	}
	w.place("n4", id)

	parent := w.selection(func(e *compute.Execution) { e.MinVRAMMiB = 80 << 10 })
	w.must(w.take(parent, "gpu.a100", "gpu.t4"))
	if children := w.children(parent); len(children) != 1 || children[0].Request.MinVRAMMiB != 80<<10 ||
		!strings.Contains(w.get(parent).Detail, "gpu.t4: too little GPU memory") {
		t.Errorf("%d children, detail %q", len(children), w.get(parent).Detail)
	}
}

// TestLeastGPUMemoryWaitsForItsFormat checks that the field is proposed only
// once every replica knows it.
func TestLeastGPUMemoryWaitsForItsFormat(t *testing.T) {
	w := newWorld(t)
	c := w.python("t4")
	c.Execution.MinVRAMMiB = 8 << 10
	if err := w.view().Allows(c); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("allowed: %v", err)
	}
}
