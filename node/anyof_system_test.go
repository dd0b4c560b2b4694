package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
)

// oneOf is a cluster in which each node has one GPU of a type of its own.
type oneOf struct {
	*testing.T

	api    *client.Client // A client of a follower.
	prices map[string]compute.Price
}

// TestAnyOfSeveralTypes asks a follower for one of several GPU types: the cheapest that
// is free is taken and charged at its own price, also when its node is lost and another
// type takes its place.
func TestAnyOfSeveralTypes(t *testing.T) {
	t.Parallel() // It mostly waits.
	types := map[string]string{"n1": "t4", "n2": "l4", "n3": "a10"}
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) {
		cfg.GPUs.Simulated = []string{types[cfg.Name] + ":1"}
	})
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	leader, others := split(t, c, root)
	w := &oneOf{T: t, api: nodetest.MustClient(t, c.MustAccount("acme").Key, others[0]), prices: compute.BuiltInPrices()}
	nodetest.Eventually(t, time.Minute, "all GPU types", func() bool {
		list, err := w.api.MachineTypes(t.Context())
		return err == nil && slices.ContainsFunc(list, func(m wire.MachineType) bool { return m.HardwareProfile == "gpu.a10" }) &&
			slices.ContainsFunc(list, func(m wire.MachineType) bool { return m.HardwareProfile == "gpu.l4" }) &&
			slices.ContainsFunc(list, func(m wire.MachineType) bool { return m.HardwareProfile == "gpu.t4" })
	})
	w.cheapestFree()
	w.badTypes()
	if testsize.Pick(false, true) {
		at := slices.IndexFunc(c.Nodes, func(p *nodetest.Process) bool { return p != leader && p.URL != others[0] })
		api := slices.IndexFunc(c.Nodes, func(p *nodetest.Process) bool { return p.URL == others[0] })
		w.lost(c.Nodes[at], types[c.Nodes[at].Config.Name], types[c.Nodes[api].Config.Name])
	}
	mustBalance(t, w.api)
}

// hold occupies the GPU of a type.
func (w *oneOf) hold(gpuType string) compute.ExecutionID {
	w.Helper()
	id := mustSubmit(w.T, w.api, client.Start{
		Code: "import time\ntime.sleep(300)", ExecutionType: gpuType, Timeout: 300,
	})
	mustReach(w.T, w.api, id, gpuType+" to be held", func(e wire.Execution) bool { return e.Status == compute.StatusRunning })
	return id
}

// mustCost checks the type and the charge of an execution that has ended.
func (w *oneOf) mustCost(id compute.ExecutionID, gpuType string) {
	w.Helper()
	e := mustFinish(w.T, w.api, id)
	timing, err := w.api.Timing(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	ran := time.Duration(timing.Running*1000+0.5) * time.Millisecond
	want := w.prices[gpuType].Charge(ran)
	if e.HardwareProfile != "gpu."+gpuType || e.Billed == nil || *e.Billed != want || want == 0 {
		w.Errorf("it ended as %s on %s, billed %v, want %s for %s of a %s", e.Status, e.HardwareProfile, e.Billed, want, ran, gpuType)
	}
}

// cheapestFree asks for GPU types of which the cheapest is free, or busy.
func (w *oneOf) cheapestFree() {
	either := client.Start{Code: "print(1)", GPUTypes: []string{"A10", "gpu.t4"}, Timeout: 60}
	w.mustCost(mustSubmit(w.T, w.api, either), "t4")
	t4 := w.hold("t4")
	w.mustCost(mustSubmit(w.T, w.api, either), "a10")
	w.mustCost(mustSubmit(w.T, w.api, client.Start{Code: "print(1)", ExecutionType: "gpu.any", Timeout: 60}), "l4")
	w.mustCost(mustSubmit(w.T, w.api, client.Start{
		Code: "print(1)", ExecutionType: "gpu.any", Timeout: 60, MinCapability: "8.6", GPUTypes: []string{"t4", "a10"},
	}), "a10")

	left := mustFinish(w.T, w.api, mustSubmit(w.T, w.api, client.Start{Code: "1", GPUTypes: []string{"a10", "h100"}, Timeout: 60}))
	if left.HardwareProfile != "gpu.a10" || len(left.Warnings) != 1 || !strings.Contains(left.Warnings[0], "h100: no node has GPUs") {
		w.Errorf("on %s with the warnings %q", left.HardwareProfile, left.Warnings)
	}
	both := []compute.ExecutionID{w.hold("a10"), t4}
	waits := mustSubmit(w.T, w.api, either)
	mustReach(w.T, w.api, waits, "the reason why it waits", func(e wire.Execution) bool {
		return e.PendingReason != nil && *e.PendingReason == compute.ReasonGPUsBusy.String() && e.HardwareProfile == "gpu.any"
	})
	if why, err := w.api.Explain(w.Context(), waits, true); err != nil || why.Position == nil || *why.Position != 1 {
		w.Errorf("it waits as %+v, %v", why, err)
	}
	for _, id := range both {
		if err := w.api.Abort(w.Context(), id); err != nil {
			w.Fatal(err)
		}
	}
	if e := mustFinish(w.T, w.api, waits); e.Status != compute.StatusCompleted || e.HardwareProfile == "gpu.any" {
		w.Errorf("it ended as %s on %s", e.Status, e.HardwareProfile)
	}
}

// badTypes asks for types that are refused.
func (w *oneOf) badTypes() {
	for _, test := range []struct {
		start client.Start
		code  string
	}{
		{client.Start{GPUTypes: []string{"t4", "p999"}}, "unknown_profile"},
		{client.Start{GPUTypes: []string{"h100"}}, "never_fits"},
		{client.Start{GPUTypes: []string{"t4"}, ExecutionType: "gpu.l4"}, "gpu_types"},
		{client.Start{GPUTypes: []string{"t4"}, ExecutionType: "cpu.2x"}, "gpu_types"},
		{client.Start{GPUTypes: []string{"t4.2x"}}, "gpu_types"},
		{client.Start{ExecutionType: "gpu.any.8x"}, "never_fits"},
		{client.Start{ExecutionType: "t4", MinCapability: "8.0"}, "never_fits"},
		{client.Start{MinCapability: "8.0"}, "min_compute_capability"},
		{client.Start{ExecutionType: "t4", MinCapability: "eight"}, "validation_error"},
	} {
		test.start.Code, test.start.Timeout = "1", 60
		_, err := w.api.Submit(w.Context(), test.start)
		if got := client.CodeOf(err); got != test.code && (test.code != "validation_error" || err == nil ||
			!strings.Contains(err.Error(), "min_compute_capability")) {
			w.Errorf("%v of %q: %v, want %s", test.start.GPUTypes, test.start.ExecutionType, err, test.code)
		}
	}
}

// lost kills the node that executes one of two types: it is executed on the other type
// and charged at its price.
func (w *oneOf) lost(victim *nodetest.Process, its, other string) {
	busy := w.hold(other)
	id := mustSubmit(w.T, w.api, client.Start{
		Code:     "import os, time\nwhile os.environ['BERTH_ATTEMPT'] == '1': time.sleep(0.1)\n",
		GPUTypes: []string{its, other}, Timeout: 300, MaxRetries: 1,
	})
	mustReach(w.T, w.api, id, "it to run", func(e wire.Execution) bool {
		return e.Status == compute.StatusRunning && e.HardwareProfile == "gpu."+its
	})
	if err := w.api.Abort(w.Context(), busy); err != nil {
		w.Fatal(err)
	}
	victim.Kill()
	w.mustCost(id, other)
}
