package fsm

import (
	"crypto/sha256"
	"encoding/binary"
)

// sum is the sum of the hashes of a set of records, in four lanes that wrap.
// It does not depend on the order in which they were added, so replicas that
// hold the same records have the same sum, and a change costs one hash.
type sum [4]uint64

func (s *sum) add(h [sha256.Size]byte) {
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

func (s *sum) sub(h [sha256.Size]byte) {
	for i := range s {
		s[i] -= binary.BigEndian.Uint64(h[8*i:])
	}
}
