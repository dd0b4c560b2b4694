// Package address says which network addresses are for special purposes. The
// guards of callbacks and of registries read it.
//
// It is not for deciding who may connect where: each guard has its own exceptions.
//
// Rules: it stands outside package compute because net/netip initialises late,
// and a supervisor that imported it would start after every library of the node.
package address

import "net/netip"

// Special returns the networks that IANA's registries of special-purpose addresses do
// not call globally reachable, and IPv6 networks that lead into IPv4 networks. Processes
// of Berth must not follow a user's address there.
func Special() []netip.Prefix {
	var out []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
		"3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}
