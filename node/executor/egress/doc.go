// Package egress gives an attempt a network that reaches the internet and nothing
// else. The attempt has a network namespace with one veth pair. The nftables rules
// in the node's own table drop traffic to private, link-local, shared and
// multicast addresses, to the cluster and to the machine itself. They masquerade
// the rest.
//
// A namespace has no name. It exists while a process holds its descriptor or runs
// in it, and the kernel removes its veth pair with it, so nothing can leak. There
// is no IPv6. The package knows nothing of attempts: it derives the addresses from
// a slot number.
package egress
