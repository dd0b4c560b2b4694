package node_test

import (
	"strings"
	"testing"

	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// checkImageLimits executes an image that tries what its limits forbid.
func checkImageLimits(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	e := mustFinish(t, api, mustSubmitImage(t, api, client.StartImage{
		Start: client.Start{Timeout: 170}, // A busy machine takes more than a minute to map 2 GiB.
		Image: dockertest.Image, RunCommand: []string{"alloc", "2200"},
	}))
	if e.Status != compute.StatusFailed || e.StatusDetails == nil || *e.StatusDetails != "out_of_memory" ||
		!strings.Contains(strings.Join(e.Errors, " "), "memory limit of 2048 MiB") || e.Billed == nil || *e.Billed == 0 {
		t.Errorf("with more memory than its limit it is %v, %v, errors %v, billed %v", e.Status, e.StatusDetails, e.Errors, e.Billed)
	}
	// Each is an attack that the limit of its line fails, but for those that write scratch space.
	tries := map[string]string{
		"write /file 0": "failed", "append /etc/passwd": "failed", "write /work/file 1": "succeeded", "write /tmp/file 1": "succeeded",
		"status NoNewPrivs: 1": "failed", "status CapBnd: 0000000000000000": "failed", "status Seccomp: 2": "failed",
	}
	command := []string{"each"}
	for try := range tries {
		command = append(append(command, strings.Fields(try)...), ";")
	}
	e = mustFinish(t, api, mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: command}))
	for try, want := range tries {
		if !strings.Contains(e.Stdout, try+": "+want) {
			t.Errorf("%s has not %s: %q %q, errors %v", try, want, e.Stdout, e.Stderr, e.Errors)
		}
	}
	id := mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: []string{"term", "0"}})
	_, pid := mustContainer(t, api, id)
	known, _ := c.Follower().Peer().View().AnyExecution(id)
	if got := dockertest.CPUMilli(t, pid); got != known.Request.VCPUMilli || got == 0 {
		t.Errorf("it has %d thousandths of a core of %d", got, known.Request.VCPUMilli)
	}
	if got := dockertest.Pids(t, pid); got != 4096 {
		t.Errorf("it may have %d processes", got)
	}
	if err := api.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, id)
}

// mustContainer returns the container of the first attempt of an execution whose program has
// printed that it is ready, and the id of its process.
func mustContainer(t *testing.T, api *client.Client, id compute.ExecutionID) (container string, pid int) {
	t.Helper()
	nodetest.Eventually(t, endWait, "the program in the container to be ready", func() bool {
		e, err := api.Execution(t.Context(), id, 0)
		if err == nil && e.Status.Terminal() {
			t.Fatalf("it is %v, errors %v", e.Status, e.Errors)
		}
		return err == nil && (strings.Contains(e.Stdout, "ready\n") || strings.Contains(e.Stdout, "sleeping\n"))
	})
	docker := dockertest.Client(t)
	found, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{
		All: true, Filters: make(dockerclient.Filters).Add("label", "berth.attempt="+id.String()+".1"),
	})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("%d containers, %v", len(found.Items), err)
	}
	seen, err := docker.ContainerInspect(t.Context(), found.Items[0].ID, dockerclient.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return seen.Container.ID, seen.Container.State.Pid
}
