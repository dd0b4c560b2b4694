package store

import (
	"crypto/sha256"
	"encoding/binary"
)

// Sum is the sum of the hashes of a set of records: four integers that wrap. It
// does not depend on the order of additions, so replicas with the same records
// have the same sum, and a change costs one hash.
type Sum [4]uint64

// Add adds the hash of a record.
func (s *Sum) Add(h [sha256.Size]byte) {
	for i := range s {
		s[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

// merge adds the sum of other records.
func (s *Sum) merge(other *Sum) {
	for i := range s {
		s[i] += other[i]
	}
}

func (s *Sum) sub(h [sha256.Size]byte) {
	for i := range s {
		s[i] -= binary.BigEndian.Uint64(h[8*i:])
	}
}
