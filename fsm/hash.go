package fsm

import (
	"crypto/sha256"
	"encoding/binary"

	"berth/compute"
)

// sum is the sum of the hashes of a set of records, in four lanes that wrap.
// It does not depend on the order in which they were added, so replicas that
// hold the same records have the same sum, and a change costs one hash.
type sum [4]uint64

func (s *sum) add(h compute.Hash) {
	for i := range s {
		s[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

// merge adds the sum of other records.
func (s *sum) merge(other *sum) {
	for i := range s {
		s[i] += other[i]
	}
}

func (s *sum) sub(h compute.Hash) {
	for i := range s {
		s[i] -= binary.BigEndian.Uint64(h[8*i:])
	}
}

// hashOf returns the hash of a record's encoding. The code of an execution
// counts by its hash, which its record carries anyway, so that a change of
// status does not hash the code again.
func hashOf(record any) compute.Hash {
	if e, ok := record.(*compute.Execution); ok && e.Bundle.Inline != nil {
		lean := *e
		lean.Bundle.Inline = nil
		record = &lean
	}
	return sha256.Sum256(mustEncode(record))
}

// Hash returns the hash of the whole state. Replicas that have applied the
// same entries return the same.
func (v *View) Hash() compute.Hash {
	h := sha256.New()
	h.Write(mustEncode(&v.meta))
	for _, t := range v.kept() {
		n, s := t.tally()
		var b [40]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		for i, lane := range s {
			binary.BigEndian.PutUint64(b[8+8*i:], lane)
		}
		h.Write(b[:])
	}
	return compute.Hash(h.Sum(nil))
}
