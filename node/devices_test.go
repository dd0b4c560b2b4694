package node_test

import (
	"fmt"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// showGPU prints the GPU variables of code, and stays until it is stopped.
const showGPU = `
import os, time
print(*(os.environ.get(n, '-') for n in (
    'BERTH_GPUS', 'BERTH_GPU_MILLI', 'BERTH_GPU_MEMORY_MIB', 'BERTH_GPU_ISOLATION', 'BERTH_GPU_MIG')))
time.sleep(300)
`

// TestSharedAndSlicedGPUs gives two halves of one device and a slice of
// another to three executions: a third half waits, everyone sees what they
// hold, and a follower says how it is isolated.
func TestSharedAndSlicedGPUs(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 3, func(i int, cfg *nodetest.NodeConfig) {
		cfg.GPUs.Source, cfg.GPUs.Simulated = "none", nil
		if i == 0 {
			cfg.GPUs.Source, cfg.GPUs.Simulated = "simulated", []string{"t4", "a100.mig_3g_40gb:2"}
		}
	})
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())

	first, second := mustStart(t, api, "gpu.t4.500m"), mustStart(t, api, "T4.500M")
	slice := mustStart(t, api, "gpu.a100.MIG_3G_40GB")
	for _, id := range []compute.ExecutionID{first, second} {
		mustHold(t, api, id, wire.GPUShare{
			GPU: "SIM-n1-0", Milli: 500, VRAMMiB: 8192, Isolation: "advisory", IsolationBy: "simulated",
		}, "-")
	}
	mustHold(t, api, slice, wire.GPUShare{
		GPU: "SIM-n1-1-1", Milli: 1000, VRAMMiB: 40960, Isolation: "advisory", IsolationBy: "simulated",
	}, "3g.40gb")

	third := mustStart(t, api, "gpu.t4.500m")
	nodetest.Eventually(t, endWait, "the third half to wait", func() bool {
		e := mustGet(t, api, third)
		return e.Status == compute.StatusQueued && e.PendingReason != nil && *e.PendingReason == "gpus_busy"
	})
	mustOffer(t, api)
	if err := api.Abort(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the third half to run", func() bool {
		return mustGet(t, api, third).Status == compute.StatusRunning
	})
	for _, id := range []compute.ExecutionID{second, slice, third} {
		if err := api.Abort(t.Context(), id); err != nil {
			t.Error(err)
		}
		mustFinish(t, api, id)
	}
	if ended := mustGet(t, api, slice); len(ended.Metadata.GPUShares) != 1 || *ended.Metadata.Isolation != "advisory" {
		t.Errorf("after its end: %+v", ended.Metadata)
	}
}

func mustStart(t *testing.T, api *client.Client, profile string) compute.ExecutionID {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{Code: showGPU, ExecutionType: profile, Timeout: 300})
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

func mustGet(t *testing.T, api *client.Client, id compute.ExecutionID) wire.Execution {
	t.Helper()
	e, err := api.Execution(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// mustHold waits until the execution prints its variables, and wants it and
// the API to say that it holds the share.
func mustHold(t *testing.T, api *client.Client, id compute.ExecutionID, want wire.GPUShare, mig string) {
	t.Helper()
	told := fmt.Sprintf("%s %d %d %s %s\n", want.GPU, want.Milli, want.VRAMMiB, want.Isolation, mig)
	nodetest.Eventually(t, endWait, "the code to say "+told, func() bool {
		return mustGet(t, api, id).Stdout == told
	})
	e := mustGet(t, api, id)
	if shares := e.Metadata.GPUShares; len(shares) != 1 || shares[0] != want {
		t.Errorf("the API says %+v, want %+v", shares, want)
	}
	if e.Metadata.Isolation == nil || *e.Metadata.Isolation != want.Isolation {
		t.Errorf("isolation is %v", e.Metadata.Isolation)
	}
}

// mustOffer wants the slice among the machine types, with one of two left, and
// nothing of the device that is cut.
func mustOffer(t *testing.T, api *client.Client) {
	t.Helper()
	types, err := api.MachineTypes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, m := range types {
		if m.HardwareProfile == "gpu.a100" {
			t.Error("a whole a100 is offered")
		}
		if !strings.Contains(m.HardwareProfile, "mig_") {
			continue
		}
		seen = true
		if m.HardwareProfile != "gpu.a100.mig_3g_40gb" || m.Total != 2 || m.Available != 1 || m.VRAMGB != 40 ||
			m.MIG == nil || *m.MIG != "3g.40gb" || m.Isolation == nil || *m.Isolation != "advisory" {
			t.Errorf("offered: %+v", m)
		}
	}
	if !seen {
		t.Errorf("no slice is offered: %+v", types)
	}
}
