package node_test

import (
	"slices"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// cardsOf are the simulated devices of the nodes: none of these types is in the
// built-in price list.
func cardsOf(cfg *nodetest.NodeConfig) {
	cfg.GPUs.Simulated = map[string][]string{
		"n1": {"rtx_4090:2"}, "n2": {"a40:1", "v100:1"}, "n3": {"rtx_a6000:1"},
	}[cfg.Name]
	cfg.Billing.Mode = "meter"
	cfg.Billing.Prices = map[string]float64{"rtx_a6000": 1.8}
}

// TestAnyCardExecutes uses a new cluster of cards without built-in prices
// through a follower: code executes on each and is charged, an operator changes
// prices and the billing mode, and executions ask for GPU memory.
func TestAnyCardExecutes(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.StartWith(t, 3, cardsOf)
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL)
	mustVoters(t, root, 3)
	_, survivors := split(t, c, root)
	root = nodetest.MustClient(t, c.RootToken, survivors[0])
	api := nodetest.MustClient(t, c.MustAccount("acme").Key, survivors[0])

	sources := map[string]compute.PriceSource{}
	nodetest.Eventually(t, time.Minute, "the price of each card", func() bool {
		list, err := root.Prices(t.Context())
		for _, p := range list.Prices {
			sources[p.Resource] = p.Source
		}
		return err == nil && len(sources) == len(compute.BuiltInPrices())+4
	})
	if sources["v100"] != compute.PriceDefault || sources["rtx_a6000"] != compute.PriceOperator ||
		sources["h100"] != compute.PriceBuiltIn {
		t.Errorf("the prices are %v", sources)
	}
	for _, profile := range []string{"gpu.rtx_4090", "gpu.v100", "gpu.a40", "gpu.rtx_a6000"} {
		e := mustExecute(t, api, client.Start{ExecutionType: profile, Code: "print(1)", Timeout: 60})
		if e.Billed == nil || *e.Billed <= 0 {
			t.Errorf("%s: billed %v", profile, e.Billed)
		}
	}
	mustChangePrice(t, root, api)
	mustAskForMemory(t, api)
	mustEnforce(t, root, api)
}

// mustExecute executes code and returns its record.
func mustExecute(t *testing.T, api *client.Client, start client.Start) wire.Execution {
	t.Helper()
	started, err := api.Submit(t.Context(), start)
	if err != nil {
		t.Fatalf("%s: %v", start.ExecutionType, err)
	}
	e, err := api.Finished(t.Context(), started.ExecutionID)
	if err != nil || e.Status != compute.StatusCompleted {
		t.Fatalf("%s ended as %s: %v", start.ExecutionType, e.Status, err)
	}
	return e
}

// mustChangePrice sets and withdraws a price.
func mustChangePrice(t *testing.T, root, api *client.Client) {
	t.Helper()
	price := func() (compute.Credits, compute.PriceSource) {
		types, err := api.MachineTypes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range types {
			if m.HardwareProfile == "gpu.v100" {
				return m.PricePerHour, m.PriceSource
			}
		}
		t.Fatal("there is no v100")
		return 0, 0
	}
	cost := compute.Price(500).PerHour()
	if listed, err := root.SetPrice(t.Context(), "v100", 1000, cost); err != nil || listed.Cost == nil || *listed.Cost != cost {
		t.Fatalf("listed as %+v, %v", listed, err)
	}
	types, err := api.MachineTypes(t.Context())
	if err != nil || !slices.ContainsFunc(types, func(m wire.MachineType) bool {
		return m.HardwareProfile == "gpu.any" && m.Total == 5
	}) {
		t.Errorf("gpu.any is not listed: %+v, %v", types, err)
	}
	e := mustExecute(t, api, client.Start{GPUTypes: []string{"v100"}, Code: "print(1)", Timeout: 60})
	if e.ProviderBilled == nil || *e.ProviderBilled <= 0 || *e.ProviderBilled > *e.Billed {
		t.Errorf("billed %v, it cost %v", e.Billed, e.ProviderBilled)
	}
	if got := e.Metadata.GPUTypes; len(got) != 1 || got[0] != "v100" {
		t.Errorf("it accepts %v", got)
	}
	if p, source := price(); p != compute.Price(1000).PerHour() || source != compute.PriceOperator {
		t.Errorf("a v100 costs %s by %s", p, source)
	}
	if _, err := root.RemovePrice(t.Context(), "v100"); err != nil {
		t.Fatal(err)
	}
	if p, source := price(); p != compute.DefaultPrice(16<<10).PerHour() || source != compute.PriceDefault {
		t.Errorf("afterwards a v100 costs %s by %s", p, source)
	}
}

// mustAskForMemory submits executions that ask for GPU memory.
func mustAskForMemory(t *testing.T, api *client.Client) {
	t.Helper()
	mustExecute(t, api, client.Start{ExecutionType: "gpu.a40", MinVRAMGB: 48, Code: "print(1)", Timeout: 60})
	_, err := api.Submit(t.Context(), client.Start{ExecutionType: "gpu.v100", MinVRAMGB: 24, Code: "1", Timeout: 60})
	if client.CodeOf(err) != "never_fits" {
		t.Errorf("a v100 of 24 GiB: %v", err)
	}
}

// mustEnforce uses more credits than there are, then turns enforcement on.
func mustEnforce(t *testing.T, root, api *client.Client) {
	t.Helper()
	if _, err := root.SetPrice(t.Context(), "v100", compute.MaxPrice, 0); err != nil {
		t.Fatal(err)
	}
	dear := client.Start{ExecutionType: "gpu.v100", Code: "print(1)", Timeout: 60}
	mustExecute(t, api, dear)
	credits, err := api.Credits(t.Context())
	if err != nil || credits.Remaining >= 100*compute.Credit {
		t.Errorf("the balance is %+v, %v", credits, err)
	}
	if mode, err := root.SetBillingMode(t.Context(), "enforce"); err != nil || mode.Mode != "enforce" {
		t.Fatalf("%+v, %v", mode, err)
	}
	if _, err := api.Submit(t.Context(), dear); client.CodeOf(err) != "credits_exhausted" {
		t.Errorf("beyond the credits: %v", err)
	}
}
