package disk

import (
	"errors"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// keyOwner is the one key of the stable store that is not raft's.
const keyOwner = "BerthOwner"

// keys lists the keys of the stable store.
func keys() []string { return []string{KeyCurrentTerm, KeyLastVoteTerm, KeyLastVoteCand, keyOwner} }

// SetOwner stores whose log it is. That stays with the log, wherever its file
// is copied to.
func (s *Log) SetOwner(owner []byte) error { return s.Set([]byte(keyOwner), owner) }

// Owner returns what SetOwner stored, nil for nothing.
func (s *Log) Owner() ([]byte, error) {
	owner, err := s.Get([]byte(keyOwner))
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return owner, err
}
