//go:build long

package node_test

import (
	"encoding/json"
	"slices"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestCallbacksOfAKilledLeader kills the process of the leader while it delivers: a receiver
// has taken some callbacks, has refused others for now, and has not answered the rest. One
// more execution ends afterwards. Each receiver gets each callback at least once, and repeats
// are the same. A follower lists the tries of both leaders, and has all sent again.
func TestCallbacksOfAKilledLeader(t *testing.T) {
	t.Parallel() // It mostly waits.
	r, held := newReceiver(t), newReceiver(t)
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) {
		cfg.Callbacks.Allow, cfg.Callbacks.CAFile = []string{"127.0.0.1/32"}, r.file
	})
	account := c.MustAccount("acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	leader, survivors := split(t, c, root)
	api := nodetest.MustClient(t, account.Key, survivors...)
	lives := c.Nodes[slices.IndexFunc(c.Nodes, func(p *nodetest.Process) bool { return p != leader })]
	start := client.Start{
		Code: "raise SystemExit(3)", Timeout: 300, ExecutionType: ownGPU(lives),
		CallbackURLs: []string{r.URL + "/now", r.URL + "/later", held.URL + "/held"},
	}
	var ids []compute.ExecutionID
	for range 3 {
		ids = append(ids, mustSubmit(t, api, start))
	}
	start.Code = "import time\ntime.sleep(300)"
	last := mustSubmit(t, api, start)
	mustReach(t, api, last, "the last one to run", func(e wire.Execution) bool { return e.Status == compute.StatusRunning })
	before := map[compute.ExecutionID][]wire.Callback{}
	nodetest.Eventually(t, endWait, "callbacks in all states", func() bool {
		for _, id := range ids {
			list, err := api.Callbacks(t.Context(), id)
			if err != nil || len(list) != 3 || list[0].Status != "delivered" || list[1].Tries == 0 || len(held.bodies(list[2].WebhookID)) == 0 {
				return false
			}
			before[id] = list
		}
		return true
	})
	leader.Kill()
	r.recover()
	held.recover()
	if err := api.Abort(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	got := func(id string) []string { return append(r.bodies(id), held.bodies(id)...) }
	seen := map[string]bool{}
	for _, id := range append(ids, last) {
		for _, url := range survivors { // One of them follows the other.
			list := mustDeliver(t, nodetest.MustClient(t, account.Key, url), id, before[id])
			for i, one := range list {
				bodies := got(one.WebhookID)
				least := 1
				if before[id] != nil && i > 0 {
					least = 2 // Tries of both leaders.
				}
				if len(bodies) < least || len(slices.Compact(slices.Clone(bodies))) != 1 {
					t.Errorf("%s of %s came as %q, want the same %d times or more", one.URL, id, bodies, least)
				}
				var body wire.CallbackBody
				if err := json.Unmarshal([]byte(bodies[0]), &body); err != nil || body.ExecutionID != id {
					t.Errorf("%s of %s is %q: %v", one.URL, id, bodies[0], err)
				}
				seen[one.WebhookID] = true
			}
		}
	}
	if len(seen) != 3*(len(ids)+1) {
		t.Errorf("%d webhook ids for %d callbacks", len(seen), 3*(len(ids)+1))
	}
	leads, _ := split(t, c, nodetest.MustClient(t, c.RootToken, survivors...))
	follower := survivors[slices.IndexFunc(survivors, func(url string) bool { return url != leads.URL })]
	mustRedeliver(t, nodetest.MustClient(t, account.Key, follower), ids[0], got)
}

// bodies returns what came under a webhook id.
func (r *receiver) bodies(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[id])
}

// mustDeliver returns the callbacks of an execution, as a node lists them, once all are
// delivered. Those that an earlier leader has tried, as listed before, have its tries too.
func mustDeliver(t *testing.T, api *client.Client, id compute.ExecutionID, before []wire.Callback) (list []wire.Callback) {
	t.Helper()
	nodetest.Eventually(t, endWait, "the next leader to deliver", func() bool {
		var err error
		list, err = api.Callbacks(t.Context(), id)
		return err == nil && !slices.ContainsFunc(list, func(one wire.Callback) bool { return one.Status != "delivered" })
	})
	if len(list) != 3 {
		t.Fatalf("%s has the callbacks %+v", id, list)
	}
	for i, one := range before {
		repeated := one.Status != "delivered"
		if list[i].WebhookID != one.WebhookID || list[i].URL != one.URL || list[i].StatusCode == nil || *list[i].StatusCode != 200 ||
			repeated != (list[i].Tries > one.Tries) {
			t.Errorf("a callback was\n%+v\nand is\n%+v", one, list[i])
		}
	}
	return list
}

// mustRedeliver has all callbacks of an execution sent again: each comes once more, the same.
func mustRedeliver(t *testing.T, api *client.Client, id compute.ExecutionID, got func(webhookID string) []string) {
	t.Helper()
	list, err := api.Callbacks(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string][]string{}
	for _, one := range list {
		before[one.WebhookID] = got(one.WebhookID)
	}
	if done, err := api.Redeliver(t.Context(), id, ""); err != nil || done.ExecutionID != id || done.Count != len(list) {
		t.Fatalf("redelivered %+v of %d, %v", done, len(list), err)
	}
	for webhookID, bodies := range before {
		nodetest.Eventually(t, endWait, "it to be sent again", func() bool { return len(got(webhookID)) > len(bodies) })
		if again := got(webhookID); len(slices.Compact(again)) != 1 {
			t.Errorf("sent again as %q", again)
		}
	}
}
