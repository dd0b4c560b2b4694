//go:build long

package node_test

import (
	"testing"

	"berth/api/client"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// newContainerHosts starts three nodes that execute containers. It returns one that does not
// lead, and a client of another one that does not.
func newContainerHosts(t *testing.T) (target *nodetest.Process, api *client.Client) {
	t.Helper()
	host, compose := dockertest.Host(t), dockertest.Compose(t)
	dockertest.Probe(t)
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) { cfg.Docker.Host, cfg.Docker.Compose = host, compose })
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL)
	mustVoters(t, root, 3)
	account := c.MustAccount("acme")
	if _, err := root.TrustOrg(t.Context(), account.Slug, true); err != nil {
		t.Fatal(err)
	}
	leader := mustLeader(t, root, c)
	var asked *nodetest.Process
	for _, n := range c.Nodes {
		switch {
		case n == leader:
		case target == nil:
			target = n
		default:
			asked = n
		}
	}
	return target, nodetest.MustClient(t, account.Key, asked.URL)
}

// TestContainersOutliveAKilledNode kills the process of a node with SIGKILL while two
// containers run there, and the supervisor of one of them. The node that starts again has the
// other one, and nothing of any is left at the end.
func TestContainersOutliveAKilledNode(t *testing.T) {
	t.Parallel() // It mostly waits.
	target, api := newContainerHosts(t)
	docker := dockertest.Client(t)
	var ids []compute.ExecutionID
	var containers []string
	for range 2 {
		start := client.StartImage{Image: dockertest.Image, RunCommand: []string{"term", "5"}}
		start.ExecutionType = ownGPU(target)
		ids = append(ids, mustSubmitImage(t, api, start))
	}
	for _, id := range ids {
		container, _ := mustContainer(t, api, id)
		containers = append(containers, container)
	}
	began := mustInspect(t, docker, containers[0]).Container.State.StartedAt
	target.Kill()
	mustKillSupervisorOf(t, ids[1], target.Config.DataDir)
	target.Start()
	if e := mustFinish(t, api, ids[1]); e.Status != compute.StatusSystemFailure || e.Billed == nil || *e.Billed != 0 {
		t.Errorf("the one without a supervisor is %v, errors %v, billed %v", e.Status, e.Errors, e.Billed)
	}
	if seen := mustInspect(t, docker, containers[0]).Container; seen.State.StartedAt != began || !seen.State.Running {
		t.Errorf("the container started at %s, now it is %+v", began, seen.State)
	}
	if err := api.Stop(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, ids[0]); e.Status != compute.StatusCancelled || e.ReturnCode == nil || *e.ReturnCode != 5 ||
		e.Stdout != "ready\nterminated\n" || len(e.Attempts) != 1 {
		t.Errorf("the other one is %v with code %v, output %q, errors %v, after %+v", e.Status, e.ReturnCode, e.Stdout, e.Errors, e.Attempts)
	}
	nodetest.Eventually(t, endWait, "nothing to be left of the node's containers", func() bool {
		return onEngine(t, docker, "berth.attempt="+ids[0].String()+".1") == [3]int{} &&
			onEngine(t, docker, "berth.attempt="+ids[1].String()+".1") == [3]int{}
	})
}
