package gossip

import (
	"errors"
	"slices"
	"time"

	"berth/compute"
)

// Limits of the data that is kept about members.
const (
	maxMembers  = 1024             // Lost nodes are forgotten beyond this.
	claimRepeat = 10 * time.Minute // The log repeats a conflicting address at most this often.
)

// errStranger is the reason why gossip ignores a node.
var errStranger = errors.New("not a node of this cluster")

// Member is a node as gossip reports it. It is a hint, which anyone who holds
// the gossip key can forge.
type Member struct {
	ID               compute.NodeID
	Name             string
	Role             compute.Role
	RPC              string // host:port.
	Gossip           string // host:port.
	API              string // Full URL.
	Metrics          string // Full URL.
	Version          string
	InventoryVersion uint64
	InventoryHash    [16]byte
	Alive            bool
}

// meta is the data that a node announces with every sign of life.
type meta struct {
	Name             string       `cbor:"1,keyasint"`
	Role             compute.Role `cbor:"2,keyasint,omitempty"`
	RPC              string       `cbor:"3,keyasint"`
	API              string       `cbor:"4,keyasint,omitempty"`
	Metrics          string       `cbor:"5,keyasint,omitempty"`
	Version          string       `cbor:"6,keyasint,omitempty"`
	InventoryVersion uint64       `cbor:"7,keyasint,omitempty"`
	InventoryHash    [16]byte     `cbor:"8,keyasint"`
}

// claim is a second address that is announced for a member.
type claim struct {
	rpc    string
	logged time.Time // When the log last reported it.
}

// Members returns the nodes that gossip has seen since this node started,
// ordered by id, this node included.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := make([]Member, 0, len(g.members))
	for _, m := range g.members {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int { return slices.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	return members
}

// Changed returns a channel that is closed at the next change of Members or of
// an inventory. Take it before reading Members.
func (g *Gossip) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Lost reports whether gossip has seen a node and sees it no longer.
func (g *Gossip) Lost(id compute.NodeID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, known := g.members[id]
	return known && !m.Alive
}

// ClaimedAddress returns the second address that is announced for a node, ""
// for none. A node that came back at another address announces one; memberlist
// accepts it only after the old address has been dead for a while.
func (g *Gossip) ClaimedAddress(id compute.NodeID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims[id].rpc
}

// noteClaim records a second address of a member and reports whether to log it:
// it is new, or was last logged long ago.
func (g *Gossip) noteClaim(id compute.NodeID, rpc string, at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.claims[id]
	if _, known := g.members[id]; !known || rpc == "" || before.rpc == rpc && at.Sub(before.logged) < claimRepeat {
		return false
	}
	g.claims[id] = claim{rpc, at}
	return true
}

// noteRefused records that an unknown node was refused.
func (g *Gossip) noteRefused() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = true
}

// noteMember records a member.
func (g *Gossip) noteMember(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.Alive && len(g.members) >= maxMembers {
		delete(g.members, m.ID)
	} else {
		g.members[m.ID] = m
	}
	if _, known := g.members[m.ID]; !known || m.Alive && m.RPC == g.claims[m.ID].rpc {
		delete(g.claims, m.ID)
	}
	if !m.Alive {
		delete(g.bodies, m.ID)
	}
	alive := 0
	for _, known := range g.members {
		if known.Alive {
			alive++
		}
	}
	g.cfg.Alive.Set(float64(alive))
	g.signal()
}

// signal wakes the callers of Changed. The caller holds mu.
func (g *Gossip) signal() {
	close(g.changed)
	g.changed = make(chan struct{})
}
