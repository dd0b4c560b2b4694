package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"berth/fsm/partial"
	"berth/fsm/store"
)

// The hash of the state is updated on write. A bit that flips in memory afterwards
// does not change it, and the replicas seem equal. All records are therefore
// hashed again from time to time.

// recountRecords is the number of records that are hashed between calls of throttle.
const recountRecords = 512

// ErrRecount is returned if the records of a replica do not match its hash.
var ErrRecount = errors.New("the records in memory are not those that were stored")

// Recount hashes all records again and compares the result with the hash that was
// updated on write. It reads one table after the other, each from the view of that
// moment, while the state continues. After every few records it calls throttle with the
// number of bytes hashed. Its error is ErrRecount or that of throttle.
func (f *FSM) Recount(throttle func(bytes int) error) error {
	for i, name := range storedNames() {
		if err := recount(f.View().stored()[i], i, throttle); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// recount hashes the records of one table. A record that cannot be decoded is
// reported as ErrRecount: its bytes have changed since it was stored.
func recount(t store.Stored, table int, throttle func(bytes int) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", ErrRecount, v)
		}
	}()
	var got store.Sum
	var lean []byte
	n, bytes := 0, 0
	t.Visit(func(encoded []byte) bool {
		n++
		bytes += len(encoded)
		if table == tableExecutions {
			lean = partial.AppendLean(lean[:0], encoded)
			encoded = lean
		}
		got.Add(sha256.Sum256(encoded))
		if n%recountRecords == 0 {
			err = throttle(bytes)
			bytes = 0
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if records, want := t.Digest(); n != records || got != want {
		return fmt.Errorf("%w: %d of %d were found, with another hash", ErrRecount, n, records)
	}
	return throttle(bytes)
}
