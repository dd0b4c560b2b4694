package executor

import (
	"errors"
	"strings"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/egress"
)

// Reap removes the firewall rules and the cgroups that a killed node left on this
// machine. Neither the node's process nor a supervisor of it may be running.
func Reap(node compute.NodeID) error {
	err := egress.Remove(tableName(node))
	host, bad := cgroup.Detect()
	if bad != nil {
		return err // Then the node had no cgroups.
	}
	names, bad := host.Groups()
	err = errors.Join(err, bad)
	for _, name := range names {
		if strings.HasPrefix(name, groupPrefix(node)) {
			err = errors.Join(err, host.Group(name).Remove(killTimeout))
		}
	}
	return errors.Join(err, detachAll(groupPrefix(node), func(string) bool { return false }))
}

// groupPrefix returns the prefix of the names of a node's cgroups.
func groupPrefix(node compute.NodeID) string { return node.String() + "." }

// tableName returns the name of a node's firewall rules.
func tableName(node compute.NodeID) string { return node.String()[:tableNameLen] }
