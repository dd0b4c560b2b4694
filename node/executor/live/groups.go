package live

import (
	"cmp"
	"time"

	"berth/compute"
	"berth/node/executor/cgroup"
)

// KillTimeout is the time for the rest of a cgroup to exit.
const KillTimeout = 10 * time.Second

// Groups are the cgroups of a node's attempts.
type Groups struct {
	Host *cgroup.Host // The cgroups of the machine.
	node compute.NodeID
}

// NewGroups returns the cgroups of a node on a machine.
func NewGroups(host *cgroup.Host, node compute.NodeID) *Groups {
	return &Groups{Host: host, node: node}
}

// Prefix returns the prefix of the names of the node's cgroups.
func (g *Groups) Prefix() string { return GroupPrefix(g.node) }

// Name returns the name of an attempt's cgroup, unless it got a warm sandbox. It contains the
// node's id, so that nodes of one machine do not touch each other's cgroups.
func (g *Groups) Name(k Key) string { return g.Prefix() + k.String() }

// Group returns the cgroup of an attempt.
func (g *Groups) Group(a *Attempt) *cgroup.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return g.Host.Group(cmp.Or(a.group, g.Name(a.Key)))
}

// GroupPrefix returns the prefix of the names of a node's cgroups.
func GroupPrefix(node compute.NodeID) string { return node.String() + "." }
