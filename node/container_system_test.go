package node_test

import (
	"strings"
	"testing"

	"berth/api/client"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// newContainerCluster returns three nodes that share the engine of this machine.
func newContainerCluster(t *testing.T) *nodetest.Cluster {
	t.Helper()
	host := dockertest.Host(t)
	dockertest.Probe(t)
	return nodetest.NewWith(t, 3, func(_ int, c *config.Config) { c.Docker.Host = host })
}

// TestContainersThroughAFollower executes images as a user of a follower does.
func TestContainersThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := newContainerCluster(t)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	start := client.StartImage{Image: dockertest.Image, RunCommand: []string{"print", "hello", "from", "a", "container"}}
	if _, err := api.SubmitImage(t.Context(), start); err == nil || !strings.Contains(err.Error(), "trusted") {
		t.Logf("an organization that nobody trusts: %v", err) // Where the engine is new enough, it is accepted.
	}
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if org, err := operator.TrustOrg(t.Context(), "acme", true); err != nil || !org.Trusted {
		t.Fatalf("got %+v, %v", org, err)
	}
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || e.Stdout != "hello from a container\n" || e.ExecutionType != compute.KindDocker {
		t.Errorf("it is %v with output %q, errors %v", e.Status, e.Stdout, e.Errors)
	}
}
