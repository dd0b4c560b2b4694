package world

import (
	"context"
	"fmt"
	"strings"
)

// firstHost is the host number of the first node; the bridge is 1.
const firstHost = 11

// makeNetwork creates the bridge and, for each node, a namespace with a veth
// pair to the bridge.
func (w *World) makeNetwork(ctx context.Context) error {
	bridge := w.slot.name()
	var b strings.Builder
	fmt.Fprintf(&b, "link add %s type bridge\naddr add %s/24 dev %s\nlink set %s up\n",
		bridge, w.slot.address(1), bridge, bridge)
	for _, n := range w.machines() {
		if err := command(ctx, "", "ip", "netns", "add", n.netns); err != nil {
			return err
		}
		fmt.Fprintf(&b, "link add %s type veth peer name eth0 netns %s\nlink set %s master %s up\n",
			n.netns, n.netns, n.netns, bridge)
	}
	if err := command(ctx, b.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	w.slot.passDocker(ctx, "-I")
	for _, n := range w.machines() {
		inside := fmt.Sprintf("addr add %s/24 dev eth0\nlink set eth0 up\nlink set lo up\n", n.IP)
		if err := command(ctx, inside, "ip", "-n", n.netns, "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}

// passDocker adds (-I) or removes (-D) the rule that lets packets on the bridge pass the
// rules of a Docker engine on this machine. The engine makes the kernel filter bridges
// too, and drops packets that are not a container's. Without an engine its chain does
// not exist.
func (s slot) passDocker(ctx context.Context, how string) {
	_ = command(ctx, "", "iptables", "-w", how, "DOCKER-USER", "-i", s.name(), "-o", s.name(), "-j", "ACCEPT")
}

// filter describes a node's inbound packet filter.
type filter struct {
	silent map[string]bool // Addresses whose packets are dropped.
	reset  bool            // Refuse with a TCP reset instead of dropping.
	loss   int             // Packets from other nodes to drop, in thousandths.
}

// Block drops all traffic from one node to another. With reset, connections are
// refused instead of timing out.
func (w *World) Block(ctx context.Context, from, to *Node, reset bool) error {
	to.filter.silent[from.IP], to.filter.reset = true, reset
	return w.applyFilter(ctx, to)
}

// Lose drops the given thousandths of the packets from other nodes.
func (w *World) Lose(ctx context.Context, n *Node, thousandths int) error {
	n.filter.loss = thousandths
	return w.applyFilter(ctx, n)
}

// Slow limits the node's egress bandwidth in kilobits a second; 0 removes the
// limit.
func (w *World) Slow(ctx context.Context, n *Node, kilobits int) error {
	if kilobits == 0 {
		return command(ctx, "", "tc", "-n", n.netns, "qdisc", "del", "dev", "eth0", "root")
	}
	return command(ctx, "", "tc", "-n", n.netns, "qdisc", "replace", "dev", "eth0", "root", "tbf",
		"rate", fmt.Sprintf("%dkbit", kilobits), "burst", "32kbit", "latency", "400ms")
}

// Heal removes every rule from the network between the nodes.
func (w *World) Heal(ctx context.Context) error {
	for _, n := range w.machines() {
		n.filter = filter{silent: map[string]bool{}}
		if err := w.applyFilter(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// applyFilter replaces a node's filter in the kernel.
func (w *World) applyFilter(ctx context.Context, n *Node) error {
	var rules strings.Builder
	for _, other := range w.machines() {
		if !n.filter.silent[other.IP] {
			continue
		}
		if n.filter.reset {
			fmt.Fprintf(&rules, "ip saddr %s meta l4proto tcp reject with tcp reset\n", other.IP)
		}
		fmt.Fprintf(&rules, "ip saddr %s drop\n", other.IP)
	}
	if n.filter.loss > 0 {
		fmt.Fprintf(&rules, "ip saddr != %s numgen random mod 1000 < %d drop\n", w.slot.address(1), n.filter.loss)
	}
	script := fmt.Sprintf("table inet faults\ndelete table inet faults\n"+
		"table inet faults { chain input { type filter hook input priority -300; policy accept;\n%s}\n}\n", rules.String())
	return command(ctx, script, "nsenter", "--net=/run/netns/"+n.netns, "--", toolPath("nft"), "-f", "-")
}
