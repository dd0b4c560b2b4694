package prepare

import (
	"errors"
	"strings"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/egress"
	"berth/node/executor/live"
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
		if strings.HasPrefix(name, live.GroupPrefix(node)) {
			err = errors.Join(err, host.Group(name).Remove(live.KillTimeout))
		}
	}
	return errors.Join(err, detachAll(live.GroupPrefix(node), func(string) bool { return false }))
}
