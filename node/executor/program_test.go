//go:build supervisor && !faults

package executor_test

import (
	"fmt"
	"os"
	"slices"
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
	await(t, "a supervisor that waits, of the small program, under its name", func() bool {
		return slices.ContainsFunc(waitingSupervisors(supervise.Command), func(pid int) bool {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return strings.HasPrefix(link, "/memfd:berth-supervisor") && string(name) == "berth-supervise\n"
		})
	})
}
