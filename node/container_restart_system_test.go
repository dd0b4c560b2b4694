package node_test

import (
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// checkContainersOutliveTheirNode stops the process of a node and starts it again while three
// containers run there: one ends meanwhile, the supervisor of one is killed meanwhile, and one
// goes on. Nothing of any is left at the end.
func checkContainersOutliveTheirNode(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	leader := c.Leader()
	var target, asked *nodetest.Node
	for _, n := range c.Servers() {
		switch {
		case n == leader:
		case target == nil && n.Config.Docker.Host != config.DockerOff:
			target = n
		default:
			asked = n
		}
	}
	var others []*nodetest.Node
	for _, n := range c.Nodes[:2] {
		if n != target {
			others = append(others, n)
		}
	}
	drainNodes(t, c, true, others...)
	api, docker := nodetest.MustClient(t, account.Key, asked.URL()), dockertest.Client(t)
	ids, containers := map[string]compute.ExecutionID{}, map[string]string{}
	for name, code := range map[string]string{"ends": "3", "lost": "4", "goes on": "5"} {
		ids[name] = mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: []string{"term", code}})
	}
	for name, id := range ids {
		containers[name], _ = mustContainer(t, api, id)
	}
	drainNodes(t, c, false, others...)
	began := mustInspect(t, docker, containers["goes on"]).Container.State.StartedAt
	target.Stop()
	mustKillSupervisorOf(t, ids["lost"], target.Config.DataDir)
	if _, err := docker.ContainerKill(t.Context(), containers["ends"], dockerclient.ContainerKillOptions{Signal: "SIGTERM"}); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "a container to end while there is no node", func() bool {
		seen, err := docker.ContainerInspect(t.Context(), containers["ends"], dockerclient.ContainerInspectOptions{})
		return cerrdefs.IsNotFound(err) || err == nil && !seen.Container.State.Running
	})
	target.Start()
	if e := mustFinish(t, api, ids["ends"]); e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 3 ||
		e.Stdout != "ready\nterminated\n" || len(e.Attempts) != 1 {
		t.Errorf("the one that ended meanwhile is %v with code %v, output %q, errors %v, after %+v", e.Status, e.ReturnCode, e.Stdout, e.Errors, e.Attempts)
	}
	if e := mustFinish(t, api, ids["lost"]); e.Status != compute.StatusSystemFailure || e.StatusDetails == nil ||
		*e.StatusDetails != "supervisor_lost" || e.Billed == nil || *e.Billed != 0 {
		t.Errorf("the one without a supervisor is %v, %v, billed %v", e.Status, e.StatusDetails, e.Billed)
	}
	if seen := mustInspect(t, docker, containers["goes on"]).Container; seen.State.StartedAt != began || seen.RestartCount != 0 || !seen.State.Running {
		t.Errorf("the container started at %s, now it is %+v", began, seen.State)
	}
	if err := api.Stop(t.Context(), ids["goes on"]); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, ids["goes on"]); e.Status != compute.StatusCancelled || e.ReturnCode == nil || *e.ReturnCode != 5 ||
		e.Stdout != "ready\nterminated\n" || len(e.Attempts) != 1 {
		t.Errorf("the one that went on is %v with code %v, output %q, errors %v, after %+v", e.Status, e.ReturnCode, e.Stdout, e.Errors, e.Attempts)
	}
	nodetest.Eventually(t, endWait, "nothing to be left of the containers", func() bool {
		for _, id := range ids {
			if onEngine(t, docker, "berth.attempt="+id.String()+".1") != [3]int{} {
				return false
			}
		}
		return true
	})
}

// mustInspect returns a container as the engine sees it.
func mustInspect(t *testing.T, docker *dockerclient.Client, id string) dockerclient.ContainerInspectResult {
	t.Helper()
	seen, err := docker.ContainerInspect(t.Context(), id, dockerclient.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
