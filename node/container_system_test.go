package node_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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
	compose := dockertest.Compose(t)
	return nodetest.NewWith(t, 3, func(_ int, c *config.Config) { c.Docker.Host, c.Docker.Compose = host, compose })
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

const composeText = `
services:
  ready:
    image: ${IMAGE}
    command: [print, ready, $GREETING]
  worker:
    image: ${IMAGE}
    command: [write, /data/file, "0"]
    volumes: [data:/data]
    depends_on: {ready: {condition: service_completed_successfully}}
  reader:
    image: ${IMAGE}
    command: [read, /data/file]
    volumes: [data:/data]
    depends_on: {worker: {condition: service_completed_successfully}}
volumes:
  data: {}
`

// TestComposeThroughAFollower executes Compose files as a user of a follower does.
func TestComposeThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := newContainerCluster(t)
	account := c.MustAccount("acme")
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if _, err := operator.TrustOrg(t.Context(), "acme", true); err != nil {
		t.Fatal(err)
	}
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	start := client.StartCompose{File: composeText}
	start.Env = map[string]string{"IMAGE": dockertest.Image, "GREETING": "to work"}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "| ready to work") || !strings.Contains(e.Stdout, "| written") {
		t.Errorf("it is %v with output %q %q, errors %v", e.Status, e.Stdout, e.Stderr, e.Errors)
	}
	start.File = "services:\n  a: {image: $IMAGE, command: [sleep, '60']}\n  b: {image: $IMAGE, command: [exit, '7']}\n"
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 7 {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
}

// TestImageService serves requests from containers, through a follower.
func TestImageService(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := newContainerCluster(t)
	account := c.MustAccount("acme")
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if _, err := operator.TrustOrg(t.Context(), "acme", true); err != nil {
		t.Fatal(err)
	}
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	start := client.StartService{Image: dockertest.Image, Port: 8000}
	start.Command = []string{"serve", "8000"}
	started, err := api.SubmitService(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "a ready replica", func() bool {
		s, err := api.Service(t.Context(), started.ExecutionID)
		return err == nil && s.Ready == 1
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		c.Follower().URL()+"/services/"+started.ExecutionID.String()+"/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+account.Key)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := string(body)
	if !strings.Contains(answer, "served /hello") {
		t.Errorf("the service answers %q", answer)
	}
	if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
}
