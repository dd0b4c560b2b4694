// Package egress gives an attempt a network that leads outside and nowhere
// else: a network namespace with one veth pair, and nftables rules of the
// node's own table that drop what is private, link-local, shared, multicast or
// the cluster's, the machine itself included, and translate the rest.
//
// A namespace has no name: it lives as long as someone has its descriptor or a
// process in it, and takes its veth pair along, so nothing can leak. IPv6 is
// not given. It knows nothing of attempts: a slot number makes the addresses.
package egress
