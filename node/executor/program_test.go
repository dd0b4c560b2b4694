//go:build supervisor

package executor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"berth/compute"
	"berth/node/executor/supervise"
)

// TestSupervisorsProgram checks that the supervisors of sandboxes execute the small program
// that this build has inside.
func TestSupervisorsProgram(t *testing.T) {
	n := newNode(t, nil)
	id := n.place(n.newWork(compute.Bundle{Code: "print('hello')"}))
	if outcome := n.end(id); outcome.Status != compute.StatusCompleted {
		t.Fatalf("ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
	}
	await(t, "a supervisor that waits", func() bool { return len(waitingSupervisors(supervise.Command)) > 0 })
	for _, pid := range waitingSupervisors(supervise.Command) {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if !strings.HasPrefix(link, "/memfd:berth-supervisor") || string(name) != "berth-supervise\n" {
			t.Errorf("supervisor %d is %q and executes %s (%v)", pid, name, link, err)
		}
	}
}
