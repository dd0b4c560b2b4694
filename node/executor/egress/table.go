package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// source contains the addresses of all slots. The range is reserved for network
// benchmarks (RFC 2544), so no real network uses it.
const source = "198.18.0.0/15"

// alwaysDenied returns the destinations that are denied to every execution.
func alwaysDenied() []string {
	return []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", source, "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	}
}

const (
	ipForwardFile = "/proc/sys/net/ipv4/ip_forward"
	smtpPort      = 25 // Denied, so that executions cannot send spam.
	dnsPort       = 53
)

// maxConnections is the number of connections that an attempt may have. The table
// of connections has 262,144 entries on a usual machine, and the kernel drops every
// new connection, those of the cluster too, when it is full.
const (
	maxConnections = 4096
	connectionsSet = "connections"
	maxAddresses   = 1 << 13 // More than there are slots.
)

// Offsets into headers.
const (
	offsetSaddr = 12
	offsetDaddr = 16
	offsetDport = 2
)

// Addresses of the networks of containers. The veth pairs have the first quarter of
// 198.18.0.0/16, the wide networks the rest of it: these have room for the largest Compose
// file. Slots are taken from the lowest, so that narrow ones are rarely used.
const (
	wideBridges    = "198.18.64.0"
	wideBits       = 25
	narrowBridges  = "198.19.0.0"
	narrowBits     = 28
	bridgeReserved = 3 // Addresses of the network itself, the bridge and the broadcast.
)

// WideSlots is how many slots have room for the containers of every Compose file: their
// addresses go up to the end of 198.18.0.0/16.
const WideSlots = 384

// bridgeMark follows the prefix in the names of bridges, and internalMark in those of
// networks without a way out.
const (
	bridgeMark   = "_"
	internalMark = bridgeMark + "i" // No digit of a slot.
)

// internalSource has the addresses of networks without a way out, each as wide as the widest
// bridge. Executions reach the range in no other way, and the machine has no route to it,
// because these bridges have no address there.
const internalSource = "100.64.0.0/10"

// InternalOfSlot is how many networks without a way out a slot has: as many as a Compose
// file may have.
const InternalOfSlot = 8

// Table is the node's own nftables table.
type Table struct {
	name   string // Part of the table's name and of its interfaces' names.
	resolv resolv
}

// Open installs the rules. It replaces the rules of an earlier process with the
// same name in one step, so that attempts that are still running are never without
// rules. The name has at most six letters and digits. The cluster's addresses are
// in deny.
func Open(name string, deny []netip.Prefix) (*Table, error) {
	t := &Table{name: name}
	var err error
	if t.resolv, err = readResolv(); err != nil {
		return nil, fmt.Errorf("open egress: %w", err)
	}
	if err := t.Deny(deny); err != nil {
		return nil, fmt.Errorf("open egress: %w", err)
	}
	// Forwarding is enabled only after the rules are installed.
	if err := os.WriteFile(ipForwardFile, []byte("1\n"), 0); err != nil {
		return nil, fmt.Errorf("open egress: %w", err)
	}
	if err := t.passDocker(); err != nil {
		return nil, fmt.Errorf("open egress: %w", err)
	}
	return t, nil
}

// Deny replaces the rules in one step. The new ones deny the addresses in
// addition to those that are always denied.
func (t *Table) Deny(addresses []netip.Prefix) error {
	deny := make([]netip.Prefix, 0, len(addresses))
	for _, text := range alwaysDenied() {
		deny = append(deny, netip.MustParsePrefix(text))
	}
	for _, prefix := range addresses {
		// Attempts have no IPv6.
		if prefix.Addr().Is4() {
			deny = append(deny, prefix.Masked())
		}
	}
	if err := t.install(deny); err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	return nil
}

// Close removes the rules. It must not be called while attempts run, because they
// need them.
func (t *Table) Close() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("close egress: %w", err)
	}
	conn.DelTable(t.table())
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("close egress: %w", err)
	}
	t.leaveDocker()
	return nil
}

// Remove removes the rules that an earlier process with the name left, if any. If
// tables cannot be listed here, none was made.
func Remove(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return nil //nolint:nilerr // No nftables here.
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil //nolint:nilerr // No nftables here.
	}
	t := Table{name: name}
	for _, table := range tables {
		if table.Name == t.table().Name {
			return t.Close()
		}
	}
	return nil
}

// Resolv returns the text of resolv.conf for attempts.
func (t *Table) Resolv() string { return t.resolv.text }

func (t *Table) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: "berth_" + t.name}
}

// prefix returns the prefix of the names of the attempts' interfaces on the host.
func (t *Table) prefix() string { return "b" + t.name + "-" }

// Bridge returns the name and the addresses of a bridge for containers, which an engine
// makes, and how many containers can be on it. The rules hold for it as for every other
// interface of the node's attempts.
func (t *Table) Bridge(slot int) (link string, subnet netip.Prefix, containers int) {
	first, bits := wideBridges, wideBits
	if slot >= WideSlots {
		first, bits = narrowBridges, narrowBits
	}
	base := netip.MustParseAddr(first).As4()
	size := 1 << (32 - bits)
	var at [4]byte
	binary.BigEndian.PutUint32(at[:], binary.BigEndian.Uint32(base[:])+uint32(slot*size))
	link = fmt.Sprintf("%s%s%x", t.prefix(), bridgeMark, slot)
	return link, netip.PrefixFrom(netip.AddrFrom4(at), bits), size - bridgeReserved
}

// Internal returns the name and the addresses of the n-th bridge of a slot without a way
// out. The rules drop all that leaves it.
func (t *Table) Internal(slot, n int) (link string, subnet netip.Prefix, err error) {
	if n >= InternalOfSlot {
		return "", netip.Prefix{}, fmt.Errorf("a slot has at most %d internal networks", InternalOfSlot)
	}
	number := slot*InternalOfSlot + n
	base := netip.MustParsePrefix(internalSource).Addr().As4()
	var at [4]byte
	binary.BigEndian.PutUint32(at[:], binary.BigEndian.Uint32(base[:])+uint32(number)<<(32-wideBits))
	return fmt.Sprintf("%s%s%x", t.prefix(), internalMark, number), netip.PrefixFrom(netip.AddrFrom4(at), wideBits), nil
}

func (t *Table) install(deny []netip.Prefix) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := t.table()
	conn.AddTable(table) // Deleting a table that does not exist would fail.
	conn.DelTable(table)
	conn.AddTable(table)
	forward := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	input := conn.AddChain(&nftables.Chain{
		Name: "input", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	nat := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	connections := &nftables.Set{
		Table: table, Name: connectionsSet, KeyType: nftables.TypeIPAddr, Dynamic: true, Size: maxAddresses,
		ID: 1, // Within this transaction. The library would count in a variable of all goroutines.
	}
	if err := conn.AddSet(connections, nil); err != nil {
		return err
	}
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		rule := &nftables.Rule{Table: table, Chain: chain}
		for _, part := range parts {
			rule.Exprs = append(rule.Exprs, part...)
		}
		conn.AddRule(rule)
	}
	// Every packet of the machine passes the chains with a hook: one comparison each for
	// those that no attempt sent. The rules for the others are in chains of their own.
	from, to := onInterface(expr.MetaKeyIIFNAME, t.prefix()), onInterface(expr.MetaKeyOIFNAME, t.prefix())
	outward := conn.AddChain(&nftables.Chain{Name: "outward", Table: table})
	machine := conn.AddChain(&nftables.Chain{Name: "machine", Table: table})
	add(forward, from, jump(outward))
	add(input, from, jump(machine))
	add(outward, family(unix.NFPROTO_IPV6), drop())
	for _, chain := range []*nftables.Chain{outward, machine} {
		add(chain, family(unix.NFPROTO_IPV4), inState(expr.CtStateBitNEW), tooMany(connections), drop())
		// A program that binds to its interface sends to any address as if that was on its
		// network, where the machine answers for all of its own.
		internal := onInterface(expr.MetaKeyIIFNAME, t.prefix()+internalMark)
		if chain == outward {
			add(chain, internal, onInterface(expr.MetaKeyOIFNAME, t.prefix()+internalMark),
				within(offsetDaddr, netip.MustParsePrefix(internalSource)), accept())
		}
		add(chain, internal, drop())
		for _, server := range t.resolv.servers {
			for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
				add(chain, within(offsetDaddr, netip.PrefixFrom(server, 32)), port(protocol, dnsPort), accept())
			}
		}
	}
	add(machine, drop())
	// Containers of one bridge reach each other. The engine keeps bridges apart.
	bridges := t.prefix() + bridgeMark
	add(outward, onInterface(expr.MetaKeyIIFNAME, bridges), onInterface(expr.MetaKeyOIFNAME, bridges),
		within(offsetDaddr, netip.MustParsePrefix(source)), accept())
	for _, prefix := range deny {
		add(outward, within(offsetDaddr, prefix), drop())
	}
	add(outward, port(unix.IPPROTO_TCP, smtpPort), drop())
	add(forward, to, inState(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept())
	add(forward, to, drop())
	add(nat, within(offsetSaddr, netip.MustParsePrefix(source)), []expr.Any{&expr.Masq{}})
	return conn.Flush()
}

// onInterface matches the interfaces whose names begin with prefix: without the
// terminating zero byte, the comparison matches a prefix.
func onInterface(key expr.MetaKey, prefix string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(prefix)},
	}
}

func family(protocol byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
	}
}

// within matches IPv4 packets whose address at the offset lies in the prefix.
func within(offset uint32, prefix netip.Prefix) []expr.Any {
	mask := binaryutil.BigEndian.PutUint32(^uint32(0) << (32 - prefix.Bits()))
	address := prefix.Masked().Addr().As4()
	return append(family(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address[:]})
}

func port(protocol byte, number uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offsetDport, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(number)},
	}
}

// inState matches packets of connections in one of the states.
func inState(states uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(states), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// tooMany matches packets of an address that has more than maxConnections.
func tooMany(connections *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offsetSaddr, Len: 4},
		&expr.Dynset{
			SrcRegKey: 1, SetName: connections.Name, SetID: connections.ID, Operation: uint32(unix.NFT_DYNSET_OP_ADD),
			Exprs: []expr.Any{&expr.Connlimit{Count: maxConnections, Flags: expr.NFT_CONNLIMIT_F_INV}},
		},
	}
}

// jump goes through the rules of a chain, and goes on after them.
func jump(to *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: to.Name}}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// resolvFiles returns the files that may list the machine's name servers. The
// second is for machines whose first names a local stub resolver.
func resolvFiles() []string {
	return []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
}

// resolv is the resolver configuration of attempts.
type resolv struct {
	servers []netip.Addr
	text    string
}

// readResolv returns the name servers that are not on the machine itself. Finding
// none is no error: attempts can still connect to addresses.
func readResolv() (resolv, error) {
	for _, name := range resolvFiles() {
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return resolv{}, err
		}
		if r := parseResolv(string(data)); len(r.servers) > 0 {
			return r, nil
		}
	}
	return resolv{}, nil
}

func parseResolv(text string) resolv {
	var r resolv
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err == nil && addr.Is4() && !addr.IsLoopback() && !addr.IsUnspecified() {
			r.servers = append(r.servers, addr)
			r.text += "nameserver " + addr.String() + "\n"
		}
	}
	return r
}
