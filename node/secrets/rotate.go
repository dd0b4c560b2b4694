package secrets

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"berth/compute"
)

// The master key is a set of sealing keys, of which one seals and all open. A rotation
// adds a key on every server, then has it seal everywhere, and at last removes the
// others. The deriving key is not rotated: tokens that are derived would end.

// maxKeys bounds the sealing keys of a file.
const maxKeys = 16

// keySet is a tink keyset as JSON.
type keySet struct {
	Primary uint32            `json:"primaryKeyId"`
	Keys    []json.RawMessage `json:"key"`
}

// id returns the identifier of the i-th key.
func (k *keySet) id(i int) uint32 {
	var key struct {
		ID uint32 `json:"keyId"`
	}
	_ = json.Unmarshal(k.Keys[i], &key) // It was written by tink. A zero identifier is of no key.
	return key.ID
}

// find returns the position of a key, -1 for none.
func (k *keySet) find(id uint32) int {
	for i := range k.Keys {
		if k.id(i) == id {
			return i
		}
	}
	return -1
}

// prefixOf returns how ciphertexts of the key that seals begin.
func prefixOf(handle *keyset.Handle) []byte {
	return binary.BigEndian.AppendUint32([]byte{1}, handle.KeysetInfo().GetPrimaryKeyId())
}

// Prefix returns how everything that is sealed now begins. It identifies the sealing key.
func (m *Master) Prefix() []byte { return bytes.Clone(m.opened.Load().prefix) }

// PrefixOf returns how everything begins that the key seals which seals in a file.
func PrefixOf(data []byte) ([]byte, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	handle, err := readKeyset(f.AEAD)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	return prefixOf(handle), nil
}

// SealedNow reports whether the key that seals now has sealed something.
func (m *Master) SealedNow(sealed []byte) bool {
	return bytes.HasPrefix(sealed, m.opened.Load().prefix)
}

// Reseal seals a value that is sealed for a context again, with the current key.
func (m *Master) Reseal(sealed, context []byte) ([]byte, error) {
	plain, err := m.Unseal(sealed, context)
	if err != nil {
		return nil, err
	}
	return m.Seal(plain, context)
}

// WithNewKey returns the file with a further key, which does not seal yet, and the prefix
// that it will have. The keys of the files of other servers are in it too.
func (m *Master) WithNewKey(others ...[]byte) (data, prefix []byte, err error) {
	data, err = m.change(func(set *keySet, f *file) error {
		for _, other := range others {
			if err := set.merge(other, f); err != nil {
				return err
			}
		}
		if len(set.Keys) >= maxKeys {
			return compute.Errorf(compute.CodeConflict, "the master key has %d keys: a rotation has to end first", len(set.Keys))
		}
		text, err := newKeyset(aead.AES256GCMKeyTemplate())
		if err != nil {
			return err
		}
		var fresh keySet
		if err := json.Unmarshal(text, &fresh); err != nil {
			return err
		}
		if set.find(fresh.Primary) >= 0 {
			return errors.New("two keys have one identifier: try again")
		}
		set.Keys = append(set.Keys, fresh.Keys...)
		prefix = binary.BigEndian.AppendUint32([]byte{1}, fresh.Primary)
		return nil
	})
	return data, prefix, err
}

// merge adds the keys of another server's file.
func (k *keySet) merge(data []byte, own *file) error {
	var f file
	var other keySet
	if err := json.Unmarshal(data, &f); err != nil || f.Cluster != own.Cluster {
		return ErrForeign
	}
	if err := json.Unmarshal(f.AEAD, &other); err != nil {
		return err
	}
	for i := range other.Keys {
		if k.find(other.id(i)) < 0 {
			k.Keys = append(k.Keys, other.Keys[i])
		}
	}
	return nil
}

// SealingWith returns the file in which the key with a prefix seals.
func (m *Master) SealingWith(prefix []byte) ([]byte, error) {
	return m.change(func(set *keySet, _ *file) error {
		if len(prefix) != 5 || set.find(binary.BigEndian.Uint32(prefix[1:])) < 0 {
			return errors.New("the master key has no such key")
		}
		set.Primary = binary.BigEndian.Uint32(prefix[1:])
		return nil
	})
}

// WithoutOldKeys returns the file with only the key that seals. Values that other keys
// sealed are lost.
func (m *Master) WithoutOldKeys() ([]byte, error) {
	return m.change(func(set *keySet, _ *file) error {
		set.Keys = set.Keys[set.find(set.Primary):][:1]
		return nil
	})
}

// change returns the file with other sealing keys.
func (m *Master) change(how func(*keySet, *file) error) ([]byte, error) {
	var f file
	var set keySet
	if err := json.Unmarshal(m.opened.Load().file, &f); err != nil {
		return nil, fmt.Errorf("change master key: %w", err)
	}
	err := json.Unmarshal(f.AEAD, &set)
	if err == nil {
		err = how(&set, &f)
	}
	if err == nil {
		f.AEAD, err = json.Marshal(set)
	}
	if err == nil {
		f.Sum, err = f.sum()
	}
	if err != nil {
		return nil, fmt.Errorf("change master key: %w", err)
	}
	return json.MarshalIndent(f, "", "  ")
}

// Replace has another file of the same cluster in place of the one at path, and uses it.
func (m *Master) Replace(path string, data []byte, cluster compute.UUID) error {
	next, err := parse(data, cluster)
	if err != nil {
		return fmt.Errorf("replace master key: %w", err)
	}
	const purpose = "comparison of deriving keys"
	if !bytes.Equal(next.Derive(purpose, 32), m.Derive(purpose, 32)) {
		return fmt.Errorf("replace master key: %w", ErrForeign)
	}
	if err := replace(path, next.Bytes()); err != nil {
		return fmt.Errorf("replace master key: %w", err)
	}
	m.opened.Store(next.opened.Load())
	return nil
}
