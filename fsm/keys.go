package fsm

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"berth/compute"
	"berth/fsm/archive"
)

// The keys of tables and indexes that are more than one identifier, and the
// order of each.
type (
	// pair is a record that belongs to another one.
	pair struct{ owner, id compute.UUID }

	// numberKey is the key of a numbered record of an owner: a ledger entry, an attempt, a
	// callback.
	numberKey struct {
		owner compute.UUID
		n     uint64
	}

	// queueKey is an execution's place in the queue: in the line of its priority
	// and organization, by age.
	queueKey struct {
		priority int
		org      compute.OrgID
		index    uint64
		id       compute.ExecutionID
	}

	// priorityKey is the place of an execution by priority, then age.
	priorityKey struct {
		priority int
		index    uint64
		id       compute.ExecutionID
	}

	// family is a refresh token's place in its family.
	family struct {
		id    compute.UUID
		token compute.Hash
	}

	// timeKey is a record for which something is due at an instant.
	timeKey struct {
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
func byBundle(a, b compute.BundleID) int       { return byUUID(a.UUID, b.UUID) }
func byExecution(a, b compute.ExecutionID) int { return byUUID(a.UUID, b.UUID) }

// byPair, byNumberKey and byQueueKey are called for every level of a tree: they
// compare the second part of a key only where the first parts are equal.

func byPair(a, b pair) int {
	if c := byUUID(a.owner, b.owner); c != 0 {
		return c
	}
	return byUUID(a.id, b.id)
}

func byNumberKey(a, b numberKey) int {
	if c := byUUID(a.owner, b.owner); c != 0 {
		return c
	}
	return cmp.Compare(a.n, b.n)
}

func byTimeKey(a, b timeKey) int { return cmp.Or(cmp.Compare(a.at, b.at), byHash(a.id, b.id)) }

func timeKeyOf(at compute.Instant, id compute.UUID) (m timeKey) {
	m.at = at
	copy(m.id[:], id[:])
	return m
}

// execution returns the identifier that momentOf put into m.
func (m timeKey) execution() (id compute.ExecutionID) {
	copy(id.UUID[:], m.id[:])
	return id
}

func byFamily(a, b family) int {
	return cmp.Or(byUUID(a.id, b.id), byHash(a.token, b.token))
}

// byQueueKey is the order of the queue: higher priority, then line by line.
func byQueueKey(a, b queueKey) int {
	if c := cmp.Compare(b.priority, a.priority); c != 0 {
		return c
	}
	if c := byOrg(a.org, b.org); c != 0 {
		return c
	}
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return byExecution(a.id, b.id)
}

// byPriorityKey is the order of queue messages: higher priority, then age.
func byPriorityKey(a, b priorityKey) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.index, b.index),
		byExecution(a.id, b.id))
}

// How many bytes the keys have that are packed.
const (
	executionWidth  = 16
	numberKeyWidth  = 16 + 8
	pairWidth       = 16 + 16
	historyKeyWidth = 16 + 8 + 16
	endKeyWidth     = 8 + 16
	ageWidth        = 8
)

// Keys as bytes in the order of the keys, and back.

func executionBytes(id compute.ExecutionID) []byte { return id.UUID[:] }

func executionFrom(b []byte) (id compute.ExecutionID) {
	copy(id.UUID[:], b)
	return id
}

func numberKeyBytes(l numberKey) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, numberKeyWidth), l.owner[:]...), l.n)
}

func numberKeyFrom(b []byte) (l numberKey) {
	l.n = binary.BigEndian.Uint64(b[copy(l.owner[:], b):])
	return l
}

func pairBytes(p pair) []byte {
	return append(append(make([]byte, 0, pairWidth), p.owner[:]...), p.id[:]...)
}

func pairFrom(b []byte) (p pair) {
	copy(p.id[:], b[copy(p.owner[:], b):])
	return p
}

func historyKeyBytes(p archive.Place) []byte {
	b := append(make([]byte, 0, historyKeyWidth), p.Org.UUID[:]...)
	return append(binary.BigEndian.AppendUint64(b, p.Index), p.ID.UUID[:]...)
}

func historyKeyFrom(b []byte) (p archive.Place) {
	copy(p.Org.UUID[:], b)
	p.Index = binary.BigEndian.Uint64(b[16:])
	copy(p.ID.UUID[:], b[24:])
	return p
}

// endKeyBytes encodes the time key of an execution: the second half of its
// identifier is not kept. The sign of an instant would put those before 1970 last.
func endKeyBytes(m timeKey) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, endKeyWidth), uint64(m.at)^1<<63)
	return append(b, m.id[:16]...)
}

func endKeyFrom(b []byte) (m timeKey) {
	m.at = compute.Instant(binary.BigEndian.Uint64(b) ^ 1<<63)
	copy(m.id[:], b[8:])
	return m
}
