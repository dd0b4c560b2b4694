package executor

import (
	"errors"
	"strings"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/egress"
)

// Reap removes what a node that was killed has left on this machine: its
// firewall rules and the cgroups of its attempts. Nothing of the node may be
// running, neither its process nor a supervisor.
func Reap(node compute.NodeID) error {
	err := egress.Remove(tableName(node))
	host, bad := cgroup.Detect()
	if bad != nil {
		return err // Then it had none.
	}
	names, bad := host.Groups()
	err = errors.Join(err, bad)
	for _, name := range names {
		if strings.HasPrefix(name, groupPrefix(node)) {
			err = errors.Join(err, host.Group(name).Remove(killTimeout))
		}
	}
	return err
}

// groupPrefix begins the names of the cgroups of a node's attempts.
func groupPrefix(node compute.NodeID) string { return node.String() + "." }

// tableName returns the name of a node's firewall rules.
func tableName(node compute.NodeID) string { return node.String()[:tableNameLen] }
