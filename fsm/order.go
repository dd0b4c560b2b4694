package fsm

import (
	"bytes"
	"cmp"

	"berth/compute"
)

// The keys of tables and indexes that are more than one identifier, and the
// order of each.
type (
	// pair is a record that belongs to another one.
	pair struct{ owner, id compute.UUID }

	// line is a numbered record of an owner: a ledger entry, an attempt, a
	// callback.
	line struct {
		owner compute.UUID
		n     uint64
	}

	// place is an execution's place in its organization's history.
	place struct {
		org   compute.OrgID
		index uint64
		id    compute.ExecutionID
	}

	// spot is an execution's place in the queue: in the line of its priority
	// and organization, by age.
	spot struct {
		priority int
		org      compute.OrgID
		index    uint64
		id       compute.ExecutionID
	}

	// turn is a parent's place among those whose queue message waits.
	turn struct {
		priority int
		index    uint64
		id       compute.ExecutionID
	}

	// family is a refresh token's place in its family.
	family struct {
		id    compute.UUID
		token compute.Hash
	}

	// moment is a record that something is due for at an instant.
	moment struct {
		at compute.Instant
		id compute.Hash // An identifier fills its first half.
	}
)

func byUUID(a, b compute.UUID) int             { return bytes.Compare(a[:], b[:]) }
func byHash(a, b compute.Hash) int             { return bytes.Compare(a[:], b[:]) }
func byNode(a, b compute.NodeID) int           { return byUUID(a.UUID, b.UUID) }
func byOrg(a, b compute.OrgID) int             { return byUUID(a.UUID, b.UUID) }
func byUser(a, b compute.UserID) int           { return byUUID(a.UUID, b.UUID) }
func byKey(a, b compute.KeyID) int             { return byUUID(a.UUID, b.UUID) }
func byExecution(a, b compute.ExecutionID) int { return byUUID(a.UUID, b.UUID) }
func byPair(a, b pair) int                     { return cmp.Or(byUUID(a.owner, b.owner), byUUID(a.id, b.id)) }

func byLine(a, b line) int { return cmp.Or(byUUID(a.owner, b.owner), cmp.Compare(a.n, b.n)) }

func byMoment(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), byHash(a.id, b.id)) }

func momentOf(at compute.Instant, id compute.UUID) (m moment) {
	m.at = at
	copy(m.id[:], id[:])
	return m
}

// execution returns the identifier that momentOf put into m.
func (m moment) execution() (id compute.ExecutionID) {
	copy(id.UUID[:], m.id[:])
	return id
}

func byFamily(a, b family) int {
	return cmp.Or(byUUID(a.id, b.id), byHash(a.token, b.token))
}

func byPlace(a, b place) int {
	return cmp.Or(byOrg(a.org, b.org), cmp.Compare(a.index, b.index), byExecution(a.id, b.id))
}

// bySpot is the order of the queue: higher priority, then line by line.
func bySpot(a, b spot) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), byOrg(a.org, b.org),
		cmp.Compare(a.index, b.index), byExecution(a.id, b.id))
}

// byTurn is the order of queue messages: higher priority, then age.
func byTurn(a, b turn) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.index, b.index),
		byExecution(a.id, b.id))
}
