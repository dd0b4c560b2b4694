//go:build long

package node_test

import (
	"net/http"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestServiceOutlivesNodes kills the node of a replica, which is placed on another one,
// and restarts the process of that one, which changes nothing.
func TestServiceOutlivesNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	mustVoters(t, nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL), 3)
	var urls []string
	for _, p := range c.Nodes {
		urls = append(urls, p.URL)
	}
	api := nodetest.MustClient(t, account.Key, urls...)
	started, err := api.SubmitService(t.Context(), client.StartService{
		Start: client.Start{Code: serviceCode}, HealthPath: "/health",
	})
	if err != nil {
		t.Fatal(err)
	}
	isReady := func(s wire.Service) bool { return s.Ready == 1 }
	first := mustService(t, api, started.ExecutionID, "a ready replica", isReady).Rows[0]
	node := func(name string) *nodetest.Process {
		for _, p := range c.Nodes {
			if p.Config.Name == name {
				return p
			}
		}
		t.Fatalf("there is no node %q", name)
		return nil
	}
	node(*first.Node).Kill()
	second := mustService(t, api, started.ExecutionID, "another node", func(s wire.Service) bool {
		return isReady(s) && *s.Rows[0].Node != *first.Node
	}).Rows[0]
	if second.ExecutionID != first.ExecutionID || second.Crashes != 0 {
		t.Errorf("the replica is %+v", second)
	}
	survivor := node(*second.Node)
	survivor.Kill()
	survivor.Start()
	address := survivor.URL + "/services/" + started.ExecutionID.String() + "/"
	nodetest.Eventually(t, endWait, "the restarted node to answer", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+account.Key)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return false // It is not up yet.
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if s := mustService(t, api, started.ExecutionID, "readiness", isReady); s.Rows[0].Restarts != 0 || s.Rows[0].ExecutionID != first.ExecutionID {
		t.Errorf("after the restart of its node's process it is %+v", s.Rows[0])
	}
	if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCancelled {
		t.Errorf("it is %v", e.Status)
	}
}
