package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	inside   = "eth0" // The attempt's end of the veth pair.
	linkBits = 30     // Four addresses, two of them usable.
)

// Network returns a new network namespace. Its only way out is a veth pair with
// the machine, which has the addresses of the slot. Forget must have removed the
// connections of an earlier attempt in the slot.
func (t *Table) Network(slot int) (*os.File, error) {
	file, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("make network: %w", err)
	}
	if err := t.connect(file, slot); err != nil {
		file.Close()
		return nil, fmt.Errorf("make network: %w", err)
	}
	return file, nil
}

// newNamespace returns a namespace without processes.
func newNamespace() (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		// The thread stays in the new namespace. It ends with this goroutine,
		// which never unlocks it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: err}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		made <- result{file, err}
	}()
	r := <-made
	return r.file, r.err
}

func (t *Table) connect(file *os.File, slot int) error {
	name := fmt.Sprintf("%s%x", t.prefix(), slot)
	// The pair of an earlier attempt in this slot may still exist, because the
	// kernel removes its namespace asynchronously.
	if old, err := netlink.LinkByName(name); err == nil {
		if err := netlink.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) { // It was being removed.
			return fmt.Errorf("remove old pair: %w", err)
		}
	}
	gateway, own := addresses(slot)
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: inside, PeerNamespace: netlink.NsFd(int(file.Fd())),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add pair: %w", err)
	}
	if err := errors.Join(t.configureHost(name, gateway), configureInside(file, gateway, own)); err != nil {
		return errors.Join(err, netlink.LinkDel(pair))
	}
	return nil
}

// Forget removes the connections of the addresses that earlier attempts in the slots
// had. The kernel keeps those that nobody closed for up to five days. They would count for
// the next attempt, and their packets would reach it. It walks the table of all
// connections of the machine once.
func Forget(slots []int) error {
	own := make(ofAddresses, len(slots))
	for _, slot := range slots {
		_, address := addresses(slot)
		own[address] = true
	}
	if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, own); err != nil {
		return fmt.Errorf("forget connections: %w", err)
	}
	return nil
}

// ofAddresses matches the connections from or to any of the addresses.
type ofAddresses map[netip.Addr]bool

func (o ofAddresses) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	source, _ := netip.AddrFromSlice(flow.Forward.SrcIP)
	destination, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	return o[source.Unmap()] || o[destination.Unmap()]
}

func (t *Table) configureHost(name string, gateway netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find pair: %w", err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: network(gateway)}); err != nil {
		return fmt.Errorf("assign address: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up pair: %w", err)
	}
	return nil
}

func configureInside(file *os.File, gateway, own netip.Addr) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
	if err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	defer h.Close()
	for _, name := range []string{"lo", inside} {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if name == inside {
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: network(own)}); err != nil {
				return fmt.Errorf("assign address: %w", err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("bring up %s: %w", name, err)
		}
	}
	if err := h.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("add route: %w", err)
	}
	return nil
}

// addresses returns the machine's and the attempt's address for the slot.
func addresses(slot int) (gateway, own netip.Addr) {
	base := netip.MustParsePrefix(source).Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + uint32(slot)<<(32-linkBits)
	var a, b [4]byte
	binary.BigEndian.PutUint32(a[:], first+1)
	binary.BigEndian.PutUint32(b[:], first+2)
	return netip.AddrFrom4(a), netip.AddrFrom4(b)
}

func network(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(linkBits, 32)}
}
