package callback

import (
	"fmt"
	"net/netip"
	"syscall"
)

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
