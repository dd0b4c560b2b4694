package dev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are below the kernel's range of ephemeral ports, so that a restarted
// node finds its ports free.
const (
	firstPort = 20_000
	lastPort  = 29_999
	portTries = 2_000
)

// freePorts returns n different loopback addresses without a listener.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	taken := map[int]bool{}
	for range portTries {
		if len(addrs) == n {
			return addrs, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if taken[port] || checkPort(ctx, addr) != nil {
			continue
		}
		taken[port] = true
		addrs = append(addrs, addr)
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, firstPort, lastPort)
}

// checkPort returns an error if a listener on addr fails, over TCP or UDP.
func checkPort(ctx context.Context, addr string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	packets, err := config.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return errors.Join(packets.Close(), l.Close())
}

// checkPorts returns an error for the first address of the plan that another
// program uses.
func (p *plan) checkPorts(ctx context.Context) error {
	for _, n := range p.Nodes {
		for _, addr := range []string{n.API, n.RPC, n.Gossip} {
			if err := checkPort(ctx, addr); err != nil {
				return fmt.Errorf("%s of node %s is taken by another program: stop that, or use another --dir: %w",
					addr, n.Name, err)
			}
		}
	}
	return nil
}
