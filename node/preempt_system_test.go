package node_test

import (
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestPreemptionThroughAFollower has two organizations ask for the same GPUs.
// Work of a higher priority preempts other work, and the leader stops between
// the notice and the end. A tag's limit makes a third execution wait. All
// complete, each charged once.
func TestPreemptionThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		cfg.Limits.PreemptMinRun, cfg.Limits.PreemptNotice = time.Second, 2*time.Second
	})
	follower := c.Follower().URL()
	acme := nodetest.MustClient(t, c.MustAccount("acme").Key, follower)
	bolt := nodetest.MustClient(t, c.MustAccount("bolt").Key, follower)
	root := nodetest.MustClient(t, c.RootToken, follower)
	if _, err := root.SetQuota(t.Context(), wire.NewQuota{Org: "acme", Tag: "sweep", MaxConcurrent: 1}); err != nil {
		t.Fatal(err)
	}

	low, high := 10, 90
	victim := mustSubmit(t, acme, client.Start{
		Code: "import os, time\nprint('attempt', os.environ['BERTH_ATTEMPT'])\n" +
			"while os.environ['BERTH_ATTEMPT'] == '1': time.sleep(0.1)\n",
		ExecutionType: "a100.4x", Timeout: 300, Preemptible: true, Priority: &low, Tags: []string{"sweep"},
	})
	mustReach(t, acme, victim, "it to run", func(e wire.Execution) bool { return e.Status == compute.StatusRunning })
	second := mustSubmit(t, acme, client.Start{Code: "print(2)", Timeout: 60, Tags: []string{"sweep"}})
	mustReach(t, acme, second, "the tag's limit", func(e wire.Execution) bool {
		return e.PendingReason != nil && *e.PendingReason == compute.ReasonTagConcurrency.String()
	})

	urgent := mustSubmit(t, bolt, client.Start{Code: "print('urgent')", ExecutionType: "a100.2x", Timeout: 60, Priority: &high})
	mustReach(t, acme, victim, "the preemption notice", func(e wire.Execution) bool {
		return e.StatusDetails != nil && *e.StatusDetails == compute.ReasonPreempted.String()
	})
	leader := c.Leader()
	leader.Stop()
	leader.Start()
	if e := mustFinish(t, bolt, urgent); e.Status != compute.StatusCompleted {
		t.Errorf("the urgent one is %v (%v)", e.Status, e.StatusDetails)
	}
	e := mustFinish(t, acme, victim)
	if e.Status != compute.StatusCompleted || len(e.Attempts) != 2 ||
		e.Attempts[0].Reason == nil || *e.Attempts[0].Reason != compute.ReasonPreempted.String() {
		t.Errorf("the preempted one is %v after %+v", e.Status, e.Attempts)
	}
	if e := mustFinish(t, acme, second); e.Status != compute.StatusCompleted {
		t.Errorf("the one behind the limit is %v (%v)", e.Status, e.StatusDetails)
	}
	if out, _ := mustStream(t, acme, victim); !strings.Contains(out, "attempt 1\n") || !strings.Contains(out, "attempt 2\n") ||
		!strings.Contains(out, "preempted: SIGTERM in 2 s") {
		t.Errorf("the output of both attempts is %q", out)
	}
	mustBalance(t, acme)
	mustBalance(t, bolt)
	quotas, err := acme.Quotas(t.Context())
	if err != nil || len(quotas.Limits) != 2 || quotas.FairShare.Used == 0 {
		t.Errorf("quotas are %+v, %v", quotas, err)
	}
}

// mustSubmit starts an execution.
func mustSubmit(t *testing.T, api *client.Client, start client.Start) compute.ExecutionID {
	t.Helper()
	started, err := api.Submit(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

// mustReach waits until an execution is as it should be.
func mustReach(t *testing.T, api *client.Client, id compute.ExecutionID, what string, ok func(wire.Execution) bool) {
	t.Helper()
	nodetest.Eventually(t, endWait, what, func() bool {
		e, err := api.Execution(t.Context(), id, 0)
		return err == nil && ok(e)
	})
}
