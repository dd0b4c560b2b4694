package disk

import (
	"bytes"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// keyOwner is the only key of the stable store that is not raft's.
const keyOwner = "BerthOwner"

// keys lists the keys of the stable store.
func keys() []string { return []string{KeyCurrentTerm, KeyLastVoteTerm, KeyLastVoteCand, keyOwner} }

// SetOwner stores the owner of the log in the log itself, so that copies of the
// file keep it.
func (s *Log) SetOwner(owner []byte) error { return s.Set([]byte(keyOwner), owner) }

// OwnerIn returns the owner in the closed log in dir, nil for none. It reads
// nothing else and changes nothing.
func OwnerIn(dir string) (owner []byte, err error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	err = guard("open", func() error {
		db, err := bbolt.Open(path, fileMode, &bbolt.Options{ReadOnly: true, Timeout: boltLockTimeout})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			conf := tx.Bucket([]byte("conf"))
			if conf == nil {
				return nil
			}
			data := conf.Get([]byte(keyOwner))
			if len(data) < seqSize+sumSize {
				return nil
			}
			s := Log{sums: crc32.MakeTable(crc32.Castagnoli)}
			owner, _, err = s.parse([]byte(keyOwner), bytes.Clone(data))
			return err
		})
	})
	return owner, err
}

// Owner returns the stored owner, nil for none.
func (s *Log) Owner() ([]byte, error) {
	owner, err := s.Get([]byte(keyOwner))
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return owner, err
}
