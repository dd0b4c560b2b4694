package compute

import "slices"

// Role is the role of a node in the cluster.
type Role uint8

// The roles of nodes. Values are written to disk: append only.
const (
	RoleServer Role = iota // Holds a replica of the state.
	RoleWorker             // Executes only.
)

var roleNames = names{"server", "worker"}

// String returns the role as configuration spells it.
func (r Role) String() string { return roleNames.text(uint8(r)) }

// MarshalText returns what String returns.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what String returns.
func (r *Role) UnmarshalText(text []byte) error {
	v, err := roleNames.value("role", text)
	*r = Role(v)
	return err
}

// NodeState is whether the leader hears from a node.
type NodeState uint8

// The states of nodes. Values are written to disk: append only.
const (
	NodeUp NodeState = iota
	NodeDown
)

var nodeStateNames = names{"up", "down"}

// String returns the state as clients read it.
func (s NodeState) String() string { return nodeStateNames.text(uint8(s)) }

// MarshalText returns what String returns.
func (s NodeState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what String returns.
func (s *NodeState) UnmarshalText(text []byte) error {
	v, err := nodeStateNames.value("node state", text)
	*s = NodeState(v)
	return err
}

// Node is the record of one machine of the cluster.
type Node struct {
	ID        NodeID    `cbor:"1,keyasint"`
	Name      string    `cbor:"2,keyasint"`
	Role      Role      `cbor:"3,keyasint"`
	State     NodeState `cbor:"4,keyasint"`
	Drained   bool      `cbor:"5,keyasint,omitempty"` // Takes no new work.
	API       string    `cbor:"6,keyasint"`           // Full URL.
	RPC       string    `cbor:"7,keyasint"`           // host:port.
	Gossip    string    `cbor:"8,keyasint"`           // host:port.
	Metrics   string    `cbor:"9,keyasint,omitempty"` // Full URL of /metrics.
	Version   string    `cbor:"10,keyasint"`
	JoinedAt  Instant   `cbor:"11,keyasint"`
	ChangedAt Instant   `cbor:"12,keyasint"` // When State last changed.

	InventoryVersion uint64 `cbor:"13,keyasint"`
	VCPUMilli        int64  `cbor:"14,keyasint"`
	MemoryMiB        int64  `cbor:"15,keyasint"`
	GPUs             []GPU  `cbor:"16,keyasint,omitempty"`

	UsedVCPUMilli int64 `cbor:"17,keyasint,omitempty"` // Held by attempts.
	UsedMemoryMiB int64 `cbor:"18,keyasint,omitempty"`

	Format uint64 `cbor:"19,keyasint,omitempty"` // Newest format of the state that it can apply; 0 for the first.

	DrainBy Instant `cbor:"20,keyasint,omitempty"` // When its remaining attempts are ended; zero for never.

	Gaps []Gap `cbor:"21,keyasint,omitempty"` // In rising order.

	ScratchMiB int64   `cbor:"24,keyasint,omitempty"` // The largest scratch space on disk; 0 for none.
	Offers     []Offer `cbor:"25,keyasint,omitempty"` // Sorted.

	EngineFault string `cbor:"26,keyasint,omitempty"` // As in Inventory.
}

// Offering reports whether n meets the needs of a request beside capacity that others
// use up: space for scratch, its offers and, for containers, an engine that answers.
func (n *Node) Offering(r *Request) bool {
	return n.Equipped(r) && (n.EngineFault == "" || !r.NeedsEngine())
}

// Equipped reports whether n is Offering once its Docker engine answers.
func (n *Node) Equipped(r *Request) bool {
	return r.ScratchMiB <= n.ScratchMiB && n.OffersAll(r.Needs)
}

// LacksEnvironment reports whether an environment, which n may be preparing, is all
// that n lacks for Offering.
func (n *Node) LacksEnvironment(r *Request) bool {
	rest := Request{ScratchMiB: r.ScratchMiB, Needs: r.WithoutEnvironments()}
	return !n.Offering(r) && n.Offering(&rest)
}

// OffersAll reports whether n offers everything in needs.
func (n *Node) OffersAll(needs []Offer) bool {
	for _, need := range needs {
		if _, found := slices.BinarySearch(n.Offers, need); !found {
			return false
		}
	}
	return true
}

// Gap is something of the sandbox that the kernel of a node does not enforce, or
// enforces less tightly than another kernel would.
type Gap uint8

// The gaps. Values are written to disk: append only.
const (
	GapCgroupV1   Gap = iota // Buffers of sockets have a limit beside the memory limit.
	GapSocketMem             // Buffers of sockets have no limit.
	GapNoLandlock            // Mounts alone keep code from files.
)

var gapNames = names{"cgroup_v1", "socket_memory_unlimited", "no_landlock"}

// String returns the gap as clients read it.
func (g Gap) String() string { return gapNames.text(uint8(g)) }

// MarshalText returns what String returns.
func (g Gap) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText accepts what String returns.
func (g *Gap) UnmarshalText(text []byte) error {
	v, err := gapNames.value("gap", text)
	*g = Gap(v)
	return err
}

// KnownFormat returns the newest format of the state that n can apply.
func (n *Node) KnownFormat() uint64 { return max(n.Format, 1) }

// Schedulable reports whether new work may be placed on n.
func (n *Node) Schedulable() bool { return n.State == NodeUp && !n.Drained }

// Brake is the circuit breaker for rescheduling: its settings, and whether it
// is active.
type Brake struct {
	SharePercent int     `cbor:"1,keyasint,omitempty"` // Active above this share of lost nodes; 0 for a third.
	ReleasedAt   Instant `cbor:"2,keyasint,omitempty"` // Nodes lost until then are given up.

	// Since is when the brake became active, by the state's clock; zero while it
	// is not.
	Since Instant `cbor:"3,keyasint,omitempty"`
}

// Revision identifies a version of the nodes' records. Equal revisions have
// equal records.
type Revision struct {
	Origin any    // Identifies one history of the records; comparable.
	Change uint64 // The number of changes in that history.
}
