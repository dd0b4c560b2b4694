package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// pastTests is a cluster of processes of which most executions that ended are
// in archives.
type pastTests struct {
	*testing.T

	cluster *nodetest.Processes
	account nodetest.Account
	ids     []compute.ExecutionID // All that were submitted, the newest last.
}

// TestOldExecutionsAreArchived has a cluster keep three finished executions in
// the state. It kills the leader while others are moved, and removes the blobs
// of a server. Every node, a worker too, always lists all of them.
func TestOldExecutionsAreArchived(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) { cfg.Retention.Count = 3 })
	worker := c.AddWorker("b200:1")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL)
	mustVoters(t, root, 3)
	p := &pastTests{T: t, cluster: c, account: c.MustAccount("acme")}
	p.execute(8, worker.URL)
	p.wantArchived(root, 5)
	p.wantAll()

	leader, survivors := split(t, c, root)
	p.execute(6, survivors...)
	leader.Kill() // Before, in, or behind the next archive.
	p.wantArchived(nodetest.MustClient(t, c.RootToken, survivors...), len(p.ids)-3)
	p.mustStart(leader)
	p.wantAll()

	leader.Stop()
	blobs := filepath.Join(leader.Config.DataDir, "blobs")
	if err := os.RemoveAll(blobs); err != nil {
		t.Fatal(err)
	}
	p.mustStart(leader)
	nodetest.Eventually(t, time.Minute, "the server without blobs to have them again", func() bool {
		state, err := root.State(t.Context(), false)
		return err == nil && state.Archives > 0 && len(blobsIn(t, blobs)) >= state.Archives // With metrics of attempts.
	})
	p.wantAll()
	p.wantUnchangeable()
}

// mustStart starts a server again and returns once it is ready.
func (p *pastTests) mustStart(server *nodetest.Process) {
	p.Helper()
	server.Start()
	nodetest.Eventually(p, time.Minute, server.Config.Name+" to be ready", func() bool {
		return nodetest.MustClient(p, "", server.URL).Ready(p.Context()) == nil
	})
}

// execute submits n executions to nodes, and returns once they have ended.
func (p *pastTests) execute(n int, urls ...string) {
	p.Helper()
	api := nodetest.MustClient(p, p.account.Key, urls...)
	var begun []compute.ExecutionID
	for range n {
		started, err := api.Submit(p.Context(), client.Start{Code: fmt.Sprintf("print(%d)\n", len(p.ids)), Timeout: 60})
		if err != nil {
			p.Fatal(err)
		}
		begun, p.ids = append(begun, started.ExecutionID), append(p.ids, started.ExecutionID)
	}
	for _, id := range begun {
		if e := mustFinish(p.T, api, id); e.Status != compute.StatusCompleted {
			p.Fatalf("execution %s is %v (%v)", id, e.Status, e.Errors)
		}
	}
}

// wantArchived waits until n executions are in archives.
func (p *pastTests) wantArchived(root *client.Client, n int) {
	p.Helper()
	var last wire.State
	nodetest.Eventually(p, time.Minute, fmt.Sprintf("%d archived executions", n), func() bool {
		state, err := root.State(p.Context(), true)
		if err != nil {
			return false
		}
		last = state
		return state.Archived == n && state.Executions == len(p.ids)-n
	})
	if last.Detail != "" {
		p.Errorf("the state breaks an invariant: %s", last.Detail)
	}
}

// wantAll fails unless every node tells of all executions, in pages too.
func (p *pastTests) wantAll() {
	p.Helper()
	want := slices.Clone(p.ids)
	slices.Reverse(want)
	for _, n := range p.cluster.Nodes {
		api := nodetest.MustClient(p, p.account.Key, n.URL)
		var got []compute.ExecutionID
		for len(got) < len(want) {
			page, err := api.History(p.Context(), client.HistoryQuery{Limit: 4, Offset: len(got)})
			if err != nil || len(page.Executions) == 0 || page.TotalExecutions != len(want) {
				p.Fatalf("%s: a page behind %d has %d of %d executions: %v",
					n.Config.Name, len(got), len(page.Executions), page.TotalExecutions, err)
			}
			for _, e := range page.Executions {
				got = append(got, e.ExecutionID)
			}
		}
		if !slices.Equal(got, want) {
			p.Errorf("%s: history is %v, want %v", n.Config.Name, got, want)
		}
		for i, id := range p.ids {
			e, err := api.Execution(p.Context(), id, 0)
			if err != nil || e.Status != compute.StatusCompleted || e.Code != fmt.Sprintf("print(%d)\n", i) ||
				len(e.Attempts) != 1 {
				p.Errorf("%s: execution %d of %d is %v, %q in %d attempts: %v", n.Config.Name, i, len(p.ids),
					e.Status, e.Code, len(e.Attempts), err)
			}
		}
	}
	mustBalance(p.T, nodetest.MustClient(p, p.account.Key, p.cluster.Nodes[0].URL))
}

// wantUnchangeable fails unless what is in an archive can be neither stopped
// nor deleted, and is still streamed.
func (p *pastTests) wantUnchangeable() {
	p.Helper()
	api := nodetest.MustClient(p, p.account.Key, p.cluster.Nodes[1].URL)
	if err := api.Delete(p.Context(), p.ids[0]); err == nil || !strings.Contains(err.Error(), "archive") {
		p.Errorf("an archived execution was deleted: %v", err)
	}
	if err := api.Abort(p.Context(), p.ids[0]); err == nil {
		p.Error("an archived execution was stopped")
	}
	if out, end := mustStream(p.T, api, p.ids[0]); out != "0\n" || end.ReturnCode != "0" {
		p.Errorf("an archived execution streams %q and ends with %+v", out, end)
	}
}

// blobsIn returns the names of the blobs in a directory.
func blobsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		names = append(names, filepath.Base(path))
	}
	return names
}
