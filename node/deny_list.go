package node

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"berth/compute"
	"berth/loop"
)

// denyListPeriod is how often the names of nodes are resolved again.
const denyListPeriod = time.Minute

// resolver finds the addresses of a host name.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// updateDenyList keeps executions of this node away from the addresses of all nodes, as
// nodes and the addresses of their names change.
func (n *Node) updateDenyList(ctx context.Context) error {
	var denied []netip.Prefix
	var at time.Time // When they were denied; zero for never.
	loop.OnChange(ctx, denyListPeriod, n.cluster.Gossip().Changed, func() {
		nodes := workerNode{n}.neighbours
		if !n.isWorker() {
			nodes = func() []*compute.Node { return slices.Collect(n.machine.View().Nodes()) }
		}
		addrs, unresolved := nodeAddrs(ctx, net.DefaultResolver, nodes())
		for _, host := range unresolved {
			n.logger.Error("executions may reach a node whose name does not resolve", "url_host", host)
		}
		now := time.Now() //nolint:forbidigo // A stopwatch.
		// Gossip changes more often than addresses do. The rules are written again now and then, because
		// others may have removed them.
		if !at.IsZero() && now.Sub(at) < denyListPeriod/2 && slices.Equal(addrs, denied) {
			return
		}
		denied, at = addrs, now
		if err := n.executor.Deny(addrs); err != nil {
			n.logger.Error("executions can reach the cluster", "err", err)
			at = time.Time{}
		}
	})
	return nil
}

// nodeAddrs returns the addresses on which nodes serve each other, sorted, each
// once, and the host names that have none.
func nodeAddrs(ctx context.Context, names resolver, nodes []*compute.Node) (addrs []netip.Prefix, unresolved []string) {
	hosts := map[string]bool{}
	for _, node := range nodes {
		for _, hostPort := range []string{node.RPC, node.Gossip} {
			if host, _, err := net.SplitHostPort(hostPort); err == nil {
				hosts[host] = true
			}
		}
	}
	for host := range hosts {
		found, err := names.LookupNetIP(ctx, "ip", host)
		if err != nil || len(found) == 0 {
			unresolved = append(unresolved, host)
		}
		for _, addr := range found {
			addr = addr.Unmap()
			addrs = append(addrs, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	slices.Sort(unresolved)
	slices.SortFunc(addrs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(addrs), unresolved
}
