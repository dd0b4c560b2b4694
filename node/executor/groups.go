package executor

import (
	"cmp"
	"time"

	"berth/compute"
	"berth/node/executor/cgroup"
)

const (
	killTimeout = 10 * time.Second // For the rest of a cgroup to exit.

	// abandonedAge is the age from which the empty cgroup of another node counts as
	// abandoned.
	abandonedAge = time.Hour
)

// groups are the cgroups of a node's attempts.
type groups struct {
	host *cgroup.Host
	node compute.NodeID
}

// prefix returns the prefix of the names of the node's cgroups.
func (g *groups) prefix() string { return groupPrefix(g.node) }

// name returns the name of an attempt's cgroup, unless it got a warm sandbox. It contains the
// node's id, so that nodes of one machine do not touch each other's cgroups.
func (g *groups) name(k key) string { return g.prefix() + k.String() }

// of returns the cgroup of an attempt.
func (g *groups) of(a *attempt) *cgroup.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return g.host.Group(cmp.Or(a.group, g.name(a.key)))
}

// SimulatedCPU returns the CPU time that an attempt of this node has used so far,
// and the CPU quota that represents its simulated GPUs, in thousandths of a core.
// It returns false for an attempt that has no simulated GPU or does not run here.
func (e *Executor) SimulatedCPU(work compute.Work) (used time.Duration, quotaMilli int64, ok bool) {
	quotaMilli, ok = simulatedCPU(work)
	if !ok {
		return 0, 0, false
	}
	used, err := e.groupOf(keyOf(work.Attempt)).CPUTime()
	return used, quotaMilli, err == nil
}

// Resources returns the CPU time that an attempt of this node has used so far and its
// memory use in bytes. It returns false for an attempt that does not run here.
func (e *Executor) Resources(work compute.Work) (cpu time.Duration, memory int64, ok bool) {
	group := e.groupOf(keyOf(work.Attempt))
	cpu, err := group.CPUTime()
	if err != nil {
		return 0, 0, false
	}
	memory, err = group.Memory()
	return cpu, memory, err == nil
}

// groupOf returns the cgroup of a live attempt of this node.
func (e *Executor) groupOf(k key) *cgroup.Group {
	if a := e.live.get(k); a != nil {
		return e.groups.of(a)
	}
	return e.groups.host.Group(e.groups.name(k))
}
