package fsm

import (
	"crypto/sha256"
	"encoding/binary"

	"berth/compute"
	"berth/fsm/store"
)

// lean returns an execution without its code, in room if it has one: a record's hash
// counts the code by its hash, which the record carries anyway, so that a change of
// status does not hash the code again.
func lean(e, room *compute.Execution) *compute.Execution {
	if e.Bundle.Inline == nil {
		return e
	}
	*room = *e
	room.Bundle.Inline = nil
	return room
}

// Hash returns the hash of the whole state. Replicas that have applied the
// same entries return the same.
func (v *View) Hash() compute.Hash {
	h := sha256.New()
	h.Write(store.MustEncode(&v.meta))
	for _, t := range v.kept() {
		n, s := t.Digest()
		var b [40]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		for i, word := range s {
			binary.BigEndian.PutUint64(b[8+8*i:], word)
		}
		h.Write(b[:])
	}
	return compute.Hash(h.Sum(nil))
}
