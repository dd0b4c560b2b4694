package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestDecisionsExplained asks a follower why executions are where they are and
// why one waits, lets it compute the decision again from its own snapshot and
// log, and asks what another node would change.
func TestDecisionsExplained(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	root := nodetest.MustClient(t, c.RootToken, c.Follower().URL())

	var ids []compute.ExecutionID
	for range 2 {
		ids = append(ids, mustSleep(t, api, "a100.4x"))
	}
	placed, waits := mustExplain(t, api, ids[0]), mustExplain(t, api, ids[1])
	for placed.Placement == nil || waits.Reason == nil || *waits.Reason != "gpus_busy" {
		if _, err := api.Execution(t.Context(), ids[1], time.Second); err != nil {
			t.Fatal(err)
		}
		placed, waits = mustExplain(t, api, ids[0]), mustExplain(t, api, ids[1])
	}
	if *waits.Position != 1 || waits.Refused["gpus_busy"] != 1 || waits.Refused["never_fits"] != 2 || waits.Estimate == nil {
		t.Errorf("what waits is explained as %+v", waits)
	}
	mustReplay(t, root, placed)
	_, err := root.Replay(t.Context(), 1<<40, 3)
	wantCode(t, err, "index_too_new")
	_, err = root.Replay(t.Context(), placed.Placement.Index-1, 3)
	if err == nil {
		t.Error("the entry before the plan holds one too")
	}
	mustAnswerWhatIf(t, root, ids[1])
	if _, err := api.Replay(t.Context(), placed.Placement.Index, 3); err == nil {
		t.Error("a tenant may replay")
	}
	for _, id := range ids {
		if err := api.Abort(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

func mustSleep(t *testing.T, api *client.Client, profile string) compute.ExecutionID {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{
		Code: "import time\ntime.sleep(100)\n", ExecutionType: profile, Timeout: 120,
	})
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

func mustExplain(t *testing.T, api *client.Client, id compute.ExecutionID) wire.Explanation {
	t.Helper()
	x, err := api.Explain(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// mustReplay computes the plan that placed an execution again.
func mustReplay(t *testing.T, root *client.Client, placed wire.Explanation) {
	t.Helper()
	again, err := root.Replay(t.Context(), placed.Placement.Index, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range again.Plans {
		i := slices.IndexFunc(plan.Decisions, func(d wire.Decision) bool { return d.ExecutionID == placed.ExecutionID })
		if !plan.Same || plan.ViewIndex != placed.Placement.ViewIndex || i < 0 {
			t.Fatalf("computed again: %+v", plan)
		}
		d := plan.Decisions[i]
		if !d.Applied || *d.Node != placed.Placement.Node || *d.Score != placed.Placement.Score || d.Best[0].Node != *d.Node {
			t.Errorf("the decision is %+v, the placement %+v", d, placed.Placement)
		}
	}
}

// mustAnswerWhatIf asks for the effect of one more node on queued executions.
func mustAnswerWhatIf(t *testing.T, root *client.Client, id compute.ExecutionID) {
	t.Helper()
	answer, err := root.WhatIf(t.Context(), wire.WhatIf{Add: []string{"a100:4 x2"}, Execution: id.String()})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Starts != 1 || answer.StartsNow != 0 || len(answer.Started) != 1 || answer.Started[0].Node != "added-1" {
		t.Errorf("with two more nodes: %+v", answer)
	}
	again, err := root.WhatIf(t.Context(), wire.WhatIf{Index: answer.Index, Remove: []string{"n2"}})
	if err != nil {
		t.Fatal(err)
	}
	if again.Index != answer.Index || again.Lost != 1 || len(again.Waiting) != 1 || again.Waiting[0].Reason != "never_fits" {
		t.Errorf("without the node: %+v", again)
	}
	_, err = root.WhatIf(t.Context(), wire.WhatIf{Add: []string{"a100"}, Remove: []string{"n9"}})
	if err == nil || !strings.Contains(err.Error(), "h100:8") || !strings.Contains(err.Error(), `"n9"`) {
		t.Errorf("a bad question: %v", err)
	}
}

// wantCode fails the test unless err has the code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}
