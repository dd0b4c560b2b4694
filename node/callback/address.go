package callback

import (
	"fmt"
	"net/netip"
	"syscall"
)

// denied returns the networks that callbacks never go to unless the operator allows it:
// those that IANA's registries of special-purpose addresses do not call globally
// reachable, and those that lead into IPv4 networks by another way.
func denied() []netip.Prefix {
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

// guard decides which addresses may be connected to.
type guard struct {
	deny, allow []netip.Prefix
}

// permits returns why an address may not be connected to.
func (g *guard) permits(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	for _, p := range g.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	for _, p := range g.deny {
		if p.Contains(addr) {
			return fmt.Errorf("%s is not a public address, and the operator does not allow it (callbacks.allow)", addr)
		}
	}
	return nil
}

// control checks the address of a connection before it is made.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: %w", address, err)
	}
	return g.permits(to.Addr())
}
