package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"berth/fsm/store"
)

// The hash of the state is kept on write: a bit of memory that flips in a record
// afterwards does not show in it, and the replicas seem equal. So now and then all
// records are hashed anew.

// recountRecords is how many records are hashed between two looks at the pace.
const recountRecords = 512

// ErrRecount is returned where the records of a replica are not those that its
// hash was made of.
var ErrRecount = errors.New("the records in memory are not those that were stored")

// Recount hashes all records anew and compares with what was kept on write. It
// takes one table after the other, each as it is then, and waits for pace, which
// is told how many bytes were hashed, after every few records; the state goes on
// meanwhile. The error is ErrRecount, or the one of pace.
func (f *FSM) Recount(pace func(bytes int) error) error {
	for i, name := range storedNames() {
		if err := recount(f.View().stored()[i], i, pace); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// recount hashes the records of one table. What cannot be decoded any more is no
// record that was stored.
func recount(t store.Stored, table int, pace func(bytes int) error) (err error) {
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
			lean = appendLean(lean[:0], encoded)
			encoded = lean
		}
		got.Add(sha256.Sum256(encoded))
		if n%recountRecords == 0 {
			err = pace(bytes)
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
	return pace(bytes)
}
