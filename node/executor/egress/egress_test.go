package egress

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const dialTimeout = 2 * time.Second

// inNamespace calls fn on a thread in the namespace.
func inNamespace(t *testing.T, file *os.File, fn func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// outsideNetwork makes a network outside the machine, with a server at each address.
func outsideNetwork(t *testing.T, addresses ...string) *os.File {
	t.Helper()
	file, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	name := fmt.Sprintf("bw%d", os.Getpid())
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: inside, PeerNamespace: netlink.NsFd(int(file.Fd())),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(pair); err != nil {
			t.Error(err)
		}
	})
	here, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	there, err := h.LinkByName(inside)
	if err != nil {
		t.Fatal(err)
	}
	must(t, netlink.LinkSetUp(here), h.LinkSetUp(there))
	for _, text := range addresses {
		addr := netip.MustParseAddr(text)
		must(t, netlink.AddrAdd(here, &netlink.Addr{IPNet: &net.IPNet{IP: addr.Prev().AsSlice(), Mask: net.CIDRMask(30, 32)}}),
			h.AddrAdd(there, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(30, 32)}}))
		serve(t, file, addr)
	}
	must(t, h.RouteAdd(&netlink.Route{Gw: netip.MustParseAddr(addresses[0]).Prev().AsSlice()}))
	return file
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serve answers each connection to ports 80 and 25 of the address with the client's address.
func serve(t *testing.T, file *os.File, addr netip.Addr) {
	t.Helper()
	for _, number := range []uint16{80, smtpPort} {
		var listener net.Listener
		must(t, inNamespace(t, file, func() (err error) {
			listener, err = net.Listen("tcp", netip.AddrPortFrom(addr, number).String())
			return err
		}))
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(conn, conn.RemoteAddr())
				conn.Close()
			}
		}()
	}
}

// ask returns the answer of the server at the address to a client in the
// namespace.
func ask(t *testing.T, file *os.File, address string) (answer string, err error) {
	t.Helper()
	err = inNamespace(t, file, func() error {
		conn, err := net.DialTimeout("tcp", address, dialTimeout)
		if err != nil {
			return err
		}
		defer conn.Close()
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		answer = string(buffer[:n])
		return err
	})
	return answer, err
}

func TestEgress(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks are made by root")
	}
	outer := outsideNetwork(t, "11.22.33.2", "10.99.0.2", "11.22.44.2", "11.22.55.2", "169.254.169.254", "100.64.0.2")
	table, err := Open(fmt.Sprintf("t%d", os.Getpid()%10000), []netip.Prefix{netip.MustParsePrefix("11.22.44.0/24")})
	must(t, err)
	defer func() { must(t, table.Close()) }()
	const slot = 4000
	file, err := table.Network(slot)
	must(t, err)
	defer file.Close()
	own, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	defer own.Close()
	_, port, err := net.SplitHostPort(own.Addr().String())
	must(t, err)
	gateway, address := addresses(slot)

	answer, err := ask(t, file, "11.22.33.2:80")
	if err != nil {
		t.Fatalf("the outside network is not reached: %v", err)
	}
	if strings.HasPrefix(answer, address.String()) {
		t.Errorf("the server sees %s: the address is not translated", answer)
	}
	if _, err := ask(t, file, "11.22.55.2:80"); err != nil {
		t.Fatalf("an address that nothing denies yet is not reached: %v", err)
	}
	must(t, table.Deny([]netip.Prefix{netip.MustParsePrefix("11.22.44.0/24"), netip.MustParsePrefix("11.22.55.2/32")}))
	var group sync.WaitGroup
	for what, target := range map[string]string{
		"a private address":      "10.99.0.2:80",
		"the cluster":            "11.22.44.2:80",
		"a new node":             "11.22.55.2:80",
		"the metadata service":   "169.254.169.254:80",
		"a shared address":       "100.64.0.2:80",
		"mail":                   "11.22.33.2:25",
		"the machine":            net.JoinHostPort(gateway.String(), port),
		"the machine's own side": net.JoinHostPort("11.22.33.1", port),
	} {
		group.Go(func() {
			if _, err := ask(t, file, target); err == nil {
				t.Errorf("%s (%s) is reached", what, target)
			}
		})
	}
	serve(t, file, address)
	group.Go(func() {
		if _, err := ask(t, outer, net.JoinHostPort(address.String(), "80")); err == nil {
			t.Error("the attempt is reached from outside")
		}
	})
	group.Wait()
}

// container makes a container of a bridge, and returns what it receives.
func container(t *testing.T, bridge netlink.Link, subnet netip.Prefix) *net.UDPConn {
	t.Helper()
	gateway := subnet.Addr().Next()
	own := gateway.Next()
	file := member(t, fmt.Sprintf("bc%d", os.Getpid()), bridge, netip.PrefixFrom(own, subnet.Bits()))
	h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
	must(t, err)
	defer h.Close()
	must(t, h.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}))
	var received *net.UDPConn
	must(t, inNamespace(t, file, func() (err error) {
		received, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, 80)))
		return err
	}))
	t.Cleanup(func() { received.Close() })
	return received
}

// TestContainersAreApart checks that a sandbox reaches no container of another attempt.
// Docker keeps containers of different bridges apart.
func TestContainersAreApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks are made by root")
	}
	table, err := Open(fmt.Sprintf("c%d", os.Getpid()%10000), nil)
	must(t, err)
	defer func() { must(t, table.Close()) }()
	link, subnet, _ := table.Bridge(WideSlots - 1)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: link}}
	must(t, netlink.LinkAdd(bridge))
	defer func() { must(t, netlink.LinkDel(bridge)) }()
	must(t, netlink.LinkSetUp(bridge), netlink.AddrAdd(bridge, &netlink.Addr{
		IPNet: &net.IPNet{IP: subnet.Addr().Next().AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)},
	}))
	received := container(t, bridge, subnet)
	sandbox, err := table.Network(4004)
	must(t, err)
	defer sandbox.Close()
	send := func(text string) error {
		conn, err := net.Dial("udp4", received.LocalAddr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fmt.Fprint(conn, text)
		return err
	}
	must(t, inNamespace(t, sandbox, func() error { return send("sandbox") }), send("machine"),
		received.SetReadDeadline(time.Now().Add(time.Minute)))
	text := make([]byte, 100)
	n, err := received.Read(text)
	must(t, err)
	if got := string(text[:n]); got != "machine" {
		t.Errorf("the container received the packet of the %s", got)
	}
}

// member makes a network namespace on a bridge, without a route to anywhere else.
func member(t *testing.T, name string, bridge netlink.Link, own netip.Prefix) *os.File {
	t.Helper()
	file, err := newNamespace()
	must(t, err)
	t.Cleanup(func() { file.Close() })
	must(t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName:  inside, PeerNamespace: netlink.NsFd(int(file.Fd())),
	}))
	here, err := netlink.LinkByName(name)
	must(t, err)
	t.Cleanup(func() { must(t, netlink.LinkDel(here)) })
	h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
	must(t, err)
	defer h.Close()
	there, err := h.LinkByName(inside)
	must(t, err)
	must(t, netlink.LinkSetUp(here), h.LinkSetUp(there), h.AddrAdd(there, &netlink.Addr{
		IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), 32)},
	}))
	return file
}

// sendBound sends a packet from a namespace to an address to which it has no route, as if
// that was on its network.
func sendBound(t *testing.T, file *os.File, to netip.AddrPort, text string) {
	t.Helper()
	must(t, inNamespace(t, file, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.BindToDevice(fd, inside); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte(text), 0, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}))
}

// TestInternalNetworks checks that containers on a network without a way out do not reach the
// machine, which answers for its addresses on every bridge. They do reach it from a bridge
// that the rules do not know.
func TestInternalNetworks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks are made by root")
	}
	table, err := Open(fmt.Sprintf("d%d", os.Getpid()%10000), nil)
	must(t, err)
	defer func() { must(t, table.Close()) }()
	sandbox, err := table.Network(4003)
	must(t, err)
	defer sandbox.Close()
	machine, _ := addresses(4003)
	received, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(machine, 0)))
	must(t, err)
	defer received.Close()
	to := received.LocalAddr().(*net.UDPAddr).AddrPort()
	link, subnet, err := table.Internal(4095, InternalOfSlot-1)
	must(t, err)
	for i, name := range []string{link, fmt.Sprintf("xd%d", os.Getpid())} {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		must(t, netlink.LinkAdd(bridge))
		defer func() { must(t, netlink.LinkDel(bridge)) }()
		must(t, netlink.LinkSetUp(bridge), os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0))
		own := subnet.Addr().Next().Next()
		file := member(t, fmt.Sprintf("be%d-%d", os.Getpid(), i), bridge, netip.PrefixFrom(own, subnet.Bits()))
		h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()))
		must(t, err)
		defer h.Close()
		sendBound(t, file, to, name)
		for found := false; !found; time.Sleep(time.Millisecond) { //nolint:forbidigo // Nothing tells. Until the machine has answered for its address.
			neighbours, err := h.NeighList(0, netlink.FAMILY_V4)
			must(t, err)
			for _, n := range neighbours {
				found = found || n.IP.Equal(machine.AsSlice()) && n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY) != 0
			}
		}
		sendBound(t, file, to, name)
		conn, err := net.Dial("udp4", to.String())
		must(t, err)
		_, err = conn.Write([]byte("machine"))
		must(t, err, conn.Close(), received.SetReadDeadline(time.Now().Add(time.Minute)))
		text := make([]byte, 100)
		n, err := received.Read(text)
		must(t, err)
		if got := string(text[:n]); (got == "machine") != (name == link) {
			t.Errorf("from %s the machine received the packet of %s first", name, got)
		}
	}
}

// connections returns how many connections of the address the machine keeps.
func connections(t *testing.T, address netip.Addr) (count int) {
	t.Helper()
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	must(t, err)
	for _, flow := range flows {
		if flow.Forward.SrcIP.Equal(address.AsSlice()) {
			count++
		}
	}
	return count
}

// TestConnectionsAreLimited checks that an attempt cannot fill the machine's table of
// connections, and that the next attempt with its address has none of them.
func TestConnectionsAreLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks are made by root")
	}
	outsideNetwork(t, "11.22.66.2")
	table, err := Open(fmt.Sprintf("v%d", os.Getpid()%10000), nil)
	must(t, err)
	defer func() { must(t, table.Close()) }()
	const slot = 4002
	_, own := addresses(slot)
	file, err := table.Network(slot)
	must(t, err)
	must(t, inNamespace(t, file, func() error {
		socket, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer socket.Close()
		for port := range uint16(maxConnections + 500) {
			if _, err := socket.WriteToUDPAddrPort([]byte{0}, netip.AddrPortFrom(netip.MustParseAddr("11.22.66.2"), 1000+port)); err != nil {
				return err
			}
		}
		return nil
	}), file.Close())
	if count := connections(t, own); count > maxConnections || count == 0 {
		t.Errorf("the attempt has %d connections, at most %d are allowed", count, maxConnections)
	}
	must(t, Forget([]int{slot - 1, slot}))
	file, err = table.Network(slot)
	must(t, err)
	defer file.Close()
	if count := connections(t, own); count != 0 {
		t.Errorf("the next attempt has %d connections of the one before", count)
	}
}

// TestSlotReuse makes the network of a slot while the kernel may still be
// removing the previous one.
func TestSlotReuse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks are made by root")
	}
	table, err := Open(fmt.Sprintf("u%d", os.Getpid()%10000), nil)
	must(t, err)
	defer func() { must(t, table.Close()) }()
	for range 5 {
		file, err := table.Network(4001)
		must(t, err)
		must(t, file.Close())
	}
}

func TestParseResolv(t *testing.T) {
	r := parseResolv("search x\nnameserver 127.0.0.53\nnameserver 10.1.2.3\nnameserver fe80::1\nnameserver 0.0.0.0\n")
	if len(r.servers) != 1 || r.text != "nameserver 10.1.2.3\n" {
		t.Errorf("parsed %+v", r)
	}
}

func TestAddressesDiffer(t *testing.T) {
	seen := make(map[netip.Addr]bool)
	whole := netip.MustParsePrefix(source)
	for slot := range 4096 {
		gateway, own := addresses(slot)
		if seen[gateway] || seen[own] || !whole.Contains(own) || !whole.Contains(gateway) {
			t.Fatalf("slot %d has %s and %s", slot, gateway, own)
		}
		seen[gateway], seen[own] = true, true
	}
	table := &Table{name: "sixsix"}
	for slot := range 4096 {
		for n := range InternalOfSlot {
			link, subnet, err := table.Internal(slot, n)
			if err != nil || seen[subnet.Addr()] || !netip.MustParsePrefix(internalSource).Overlaps(subnet) || len(link) >= unix.IFNAMSIZ {
				t.Fatalf("slot %d has %s of %s without a way out, %v", slot, subnet, link, err)
			}
			seen[subnet.Addr()] = true
		}
		_, subnet, containers := table.Bridge(slot)
		if first := subnet.Addr(); subnet.Masked().Addr() != first || containers < 1 {
			t.Fatalf("slot %d has the bridge %s for %d containers", slot, subnet, containers)
		}
		own := subnet.Addr()
		for range containers + bridgeReserved {
			if seen[own] || !whole.Contains(own) || !subnet.Contains(own) {
				t.Fatalf("slot %d has %s of %s", slot, own, subnet)
			}
			seen[own] = true
			own = own.Next()
		}
	}
}
