package executor_test

import (
	"strings"
	"testing"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/docker/dockertest"
)

// newDockerNode returns a node that executes containers on a real engine.
func newDockerNode(t *testing.T) *node {
	t.Helper()
	host := dockertest.Host(t)
	dockertest.Probe(t)
	return newNode(t, func(c *executor.Config) { c.Containers.Host = host })
}

// contain executes a command in a container of the probe image to its end.
func (n *node) contain(command []string, change func(*compute.Work)) (compute.Outcome, string) {
	n.t.Helper()
	return n.execute(compute.Bundle{Command: command}, func(w *compute.Work) {
		w.Execution.Kind = compute.KindDocker
		w.Execution.Container = &compute.Container{Images: []string{dockertest.Image}}
		if change != nil {
			change(w)
		}
	})
}

// TestContainers executes containers as users do, and checks how they end.
func TestContainers(t *testing.T) {
	n := newDockerNode(t)
	tests := []struct {
		name    string
		command []string
		change  func(*compute.Work)
		status  compute.Status
		reason  compute.Reason
		code    int
		output  string
	}{
		{name: "output", command: []string{"print", "hello"}, status: compute.StatusCompleted, output: "hello\n"},
		{
			name: "exit code", command: []string{"exit", "7"}, status: compute.StatusFailed,
			reason: compute.ReasonExitCode, code: 7,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			outcome, output := n.as(t).contain(test.command, test.change)
			if outcome.Status != test.status || outcome.Reason != test.reason || outcome.ExitCode != test.code {
				t.Errorf("ended as %v, %v (%s), code %d", outcome.Status, outcome.Reason, outcome.Detail, outcome.ExitCode)
			}
			if !strings.Contains(output, test.output) {
				t.Errorf("output is %q, want %q in it", output, test.output)
			}
		})
	}
}
