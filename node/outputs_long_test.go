//go:build long

package node_test

import (
	"bytes"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// TestOutputsSurviveTheNodeProcess kills the process of a node while code runs on
// it, and again while nobody has its outputs. The next process stores them.
func TestOutputsSurviveTheNodeProcess(t *testing.T) {
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Nodes[0].URL, c.Nodes[2].URL)
	started, err := api.Submit(t.Context(), client.Start{
		Code: "import os, time\nos.mkdir('outputs')\nopen('outputs/partial', 'wb').write(bytes(5 << 20))\n" +
			"print('written', flush=True)\ntime.sleep(600)\n",
		ExecutionType: "a100", Timeout: 8, DisconnectGrace: new(600),
	})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the outputs to be written", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && e.Stdout == "written\n"
	})
	c.Nodes[1].Kill()
	c.Nodes[1].Start()
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || len(e.Outputs) != 1 || len(e.Warnings) != 0 {
		t.Fatalf("it ended as %s %v with %v, %v", e.Status, e.Errors, e.Outputs, e.Warnings)
	}
	c.Nodes[1].Kill() // The copies are on two nodes.
	var got bytes.Buffer
	if _, err := api.Output(t.Context(), e.ExecutionID, "partial", 0, &got); err != nil || got.Len() != 5<<20 {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	c.Nodes[1].Start()
}
