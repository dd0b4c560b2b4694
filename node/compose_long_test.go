//go:build long

package node_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// TestComposeOutlivesAKilledNode kills the process of a node with SIGKILL while a Compose file
// runs there. The services go on, are stopped later as they would have been, and leave nothing.
// A service that ignores SIGTERM is killed.
func TestComposeOutlivesAKilledNode(t *testing.T) {
	t.Parallel() // It mostly waits.
	target, api := newContainerHosts(t)
	docker := dockertest.Client(t)
	submit := func(file string) compute.ExecutionID {
		t.Helper()
		start := client.StartCompose{File: file, GracefulTimeout: 2}
		start.Env, start.ExecutionType = map[string]string{"IMAGE": dockertest.Image}, ownGPU(target)
		started, err := api.SubmitCompose(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		return started.ExecutionID
	}
	prints := func(id compute.ExecutionID, text string, count int) {
		t.Helper()
		nodetest.Eventually(t, endWait, "services to print "+text, func() bool {
			e, err := api.Execution(t.Context(), id, 0)
			return err == nil && strings.Count(e.Stdout, text) == count
		})
	}
	containers := func(id compute.ExecutionID) (began []string) {
		t.Helper()
		found, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{
			Filters: make(dockerclient.Filters).Add("label", "berth.attempt="+id.String()+".1"),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found.Items {
			began = append(began, one.ID+mustInspect(t, docker, one.ID).Container.State.StartedAt)
		}
		return began
	}
	id := submit(endlessText)
	prints(id, "ready", 2)
	before := containers(id)
	target.Kill()
	target.Start()
	deaf := submit("services:\n  a: {image: $IMAGE, command: [sleep, '300']}\n")
	prints(deaf, "sleeping", 1)
	if after := containers(id); len(after) != 2 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the containers were %v and are %v", before, after)
	}
	for _, one := range []compute.ExecutionID{id, deaf} {
		if err := api.Stop(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, one)
		if e.Status != compute.StatusCancelled || len(e.Attempts) != 1 || one == id && strings.Count(e.Stdout, "terminated") != 2 {
			t.Errorf("it is %v, output %q, errors %v, after %+v", e.Status, e.Stdout, e.Errors, e.Attempts)
		}
		nodetest.Eventually(t, endWait, "nothing to be left", func() bool {
			return onEngine(t, docker, "berth.attempt="+one.String()+".1") == [3]int{}
		})
	}
	t.Run("machine", func(t *testing.T) { checkMachineIsShut(t, api) })
}

// checkMachineIsShut has a container that is on a network with a way out connect to the machine.
func checkMachineIsShut(t *testing.T, api *client.Client) {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	machine := fmt.Sprintf("%s:%d", machineAddress(t), listener.Addr().(*net.TCPAddr).Port)
	start := client.StartImage{Image: dockertest.Image, RunCommand: []string{"each", "dial", machine}}
	if e := mustFinish(t, api, mustSubmitImage(t, api, start)); !strings.Contains(e.Stdout, "dial "+machine+": failed") {
		t.Errorf("a container reaches the machine: %q %q, errors %v", e.Stdout, e.Stderr, e.Errors)
	}
}
