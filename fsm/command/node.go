package command

import (
	"slices"
	"time"

	"berth/compute"
	"berth/fsm/format"
)

type (
	// RegisterNode makes a node a member, or renews a member's description of
	// itself. A node that is not known yet must bring a join token.
	RegisterNode struct {
		Node      compute.Node `cbor:"1,keyasint"` // Identity, role, addresses, version; the rest is ignored.
		TokenID   string       `cbor:"2,keyasint,omitempty"`
		TokenHash compute.Hash `cbor:"3,keyasint,omitempty"`
		First     bool         `cbor:"4,keyasint,omitempty"` // The node that made the cluster; only while there is none.
		Key       compute.Hash `cbor:"5,keyasint,omitzero"`  // SHA-256 of the public key that it wants a certificate for.
	}

	// SetInventory replaces a node's report on its hardware. An older version
	// than the recorded one changes nothing.
	SetInventory struct {
		Term      uint64            `cbor:"1,keyasint"`
		Inventory compute.Inventory `cbor:"2,keyasint"`
	}

	// SetNodeState records that the leader hears, or no longer hears, a node.
	SetNodeState struct {
		Term  uint64            `cbor:"1,keyasint"`
		Node  compute.NodeID    `cbor:"2,keyasint"`
		State compute.NodeState `cbor:"3,keyasint"`
	}

	// DrainNode stops or resumes the placing of new work on a node.
	DrainNode struct {
		Op      Op             `cbor:"1,keyasint"`
		Actor   Actor          `cbor:"2,keyasint"`
		Node    compute.NodeID `cbor:"3,keyasint"`
		Drained bool           `cbor:"4,keyasint,omitempty"`
		Within  time.Duration  `cbor:"5,keyasint,omitempty"` // Time after which remaining attempts are ended; 0 for never.
	}

	// RemoveNode makes a node that holds no attempt leave for good, as long as
	// those that have its copies stay.
	RemoveNode struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Node   compute.NodeID   `cbor:"3,keyasint"`
		Beside []compute.NodeID `cbor:"4,keyasint,omitempty"` // Servers that said they lack nothing without it.
	}

	// CreateJoinToken records a token with which nodes may join.
	CreateJoinToken struct {
		Op    Op                `cbor:"1,keyasint"`
		Actor Actor             `cbor:"2,keyasint"`
		Token compute.JoinToken `cbor:"3,keyasint"`
	}
)

// nodeRows returns the rows of commands about nodes.
func nodeRows() []*row {
	return []*row{
		payload[RegisterNode]{
			number: 4, since: format.First,
			uses: func(c RegisterNode) uint64 { return formatIf(c.Key != (compute.Hash{}), format.Trust) },
		}.row(),
		payload[SetInventory]{
			number: 5, since: format.First, onFullDisk: true,
			term: func(c SetInventory) uint64 { return c.Term },
			uses: func(c SetInventory) uint64 {
				i := c.Inventory
				knows := slices.ContainsFunc(i.GPUs, func(g compute.GPU) bool { return g.Capability != 0 })
				return max(formatIf(len(i.Gaps) > 0, format.Imports),
					formatIf(i.ScratchMiB > 0 || len(i.Offers) > 0 || knows, format.Lab),
					formatIf(i.EngineFault != "", format.Rotation))
			},
		}.row(),
		payload[SetNodeState]{
			number: 6, since: format.First, onFullDisk: true,
			term: func(c SetNodeState) uint64 { return c.Term },
		}.row(),
		payload[DrainNode]{
			number: 7, since: format.First, onFullDisk: true,
			op:   func(c DrainNode) Op { return c.Op },
			uses: func(c DrainNode) uint64 { return formatIf(c.Within != 0, format.Trust) },
		}.row(),
		payload[RemoveNode]{
			number: 8, since: format.First, onFullDisk: true,
			op:   func(c RemoveNode) Op { return c.Op },
			uses: func(c RemoveNode) uint64 { return formatIf(len(c.Beside) > 0, format.Trust) },
		}.row(),
		payload[CreateJoinToken]{
			number: 9, since: format.First,
			op: func(c CreateJoinToken) Op { return c.Op },
		}.row(),
	}
}
