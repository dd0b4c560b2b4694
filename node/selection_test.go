package node_test

import (
	"fmt"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestSelectionOutlivesTheLeader asks a follower for two GPU selections and
// kills the leader's process in the middle of both. One ends once, with every
// run charged once. The abort of the other one ends all of its runs.
func TestSelectionOutlivesTheLeader(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	leader, survivors := split(t, c, root)
	api := nodetest.MustClient(t, account.Key, survivors...)

	selection, endless := mustSelect(t, api, 6), mustSelect(t, api, 300)
	mustRunAll(t, api, selection)
	mustRunAll(t, api, endless)
	leader.Kill()
	leader.Start()

	if err := api.Abort(t.Context(), endless); err != nil {
		t.Fatal(err)
	}
	aborted := mustFinish(t, api, endless)
	if aborted.Status != compute.StatusAborted {
		t.Errorf("the aborted selection is %v", aborted.Status)
	}
	for _, r := range mustSelection(t, api, endless).Rows {
		e := mustFinish(t, api, r.ExecutionID)
		if e.Status != compute.StatusAborted || e.Billed == nil {
			t.Errorf("%s of the aborted selection is %v, charged %v", r.HardwareProfile, e.Status, e.Billed)
		}
	}

	if e := mustFinish(t, api, selection); e.Status != compute.StatusCompleted {
		t.Errorf("the selection is %v (%v), want completed", e.Status, e.StatusDetails)
	}
	s := mustSelection(t, api, selection)
	if len(s.Rows) != 4 || s.Recommendation == nil {
		t.Fatalf("got %d rows and recommendation %v, want 4 and one", len(s.Rows), s.Recommendation)
	}
	for _, r := range s.Rows {
		if r.Status != compute.StatusCompleted || len(r.Runs) != 1 || r.CreditsSpent <= 0 {
			t.Errorf("%s is %v after %d runs for %v credits, want completed after one", r.HardwareProfile,
				r.Status, len(r.Runs), r.CreditsSpent)
		}
	}
	history, err := api.History(t.Context(), client.HistoryQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * (1 + len(s.Rows)); history.TotalExecutions != want {
		t.Errorf("%d executions in the history, want %d: two parents and their runs", history.TotalExecutions, want)
	}
	mustBalance(t, api)
}

// mustSelect asks which GPU type is best for code that sleeps.
func mustSelect(t *testing.T, api *client.Client, seconds int) compute.ExecutionID {
	t.Helper()
	started, err := api.SubmitSelection(t.Context(), client.StartSelection{
		Start:     client.Start{Code: fmt.Sprintf("import time\ntime.sleep(%d)", seconds), Timeout: 300},
		Objective: "fastest", EarlyStop: new(bool),
	})
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

// mustRunAll waits until the code of a GPU selection runs on every type.
func mustRunAll(t *testing.T, api *client.Client, id compute.ExecutionID) {
	t.Helper()
	nodetest.Eventually(t, endWait, "every GPU type to run", func() bool {
		rows := mustSelection(t, api, id).Rows
		for _, r := range rows {
			if r.Status != compute.StatusRunning && r.Status != compute.StatusCompleted {
				return false
			}
		}
		return len(rows) == 4
	})
}

// mustSelection returns a GPU selection as it stands.
func mustSelection(t *testing.T, api *client.Client, id compute.ExecutionID) wire.Selection {
	t.Helper()
	s, err := api.Selection(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
