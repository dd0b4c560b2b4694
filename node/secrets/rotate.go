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
			if _, err := set.merge(other, f); err != nil {
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

// merge adds the keys of another server's file. It returns which of them seals there.
func (k *keySet) merge(data []byte, own *file) (primary uint32, err error) {
	var f file
	var other keySet
	if err := json.Unmarshal(data, &f); err != nil || f.Cluster != own.Cluster {
		return 0, ErrForeign
	}
	if _, err := parse(data, own.Cluster); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(f.AEAD, &other); err != nil {
		return 0, err
	}
	if !sameJSON(f.PRF, own.PRF) {
		return 0, ErrForeign
	}
	for i := range other.Keys {
		if k.find(other.id(i)) < 0 {
			k.Keys = append(k.Keys, other.Keys[i])
		}
	}
	return other.Primary, nil
}

// sameJSON reports whether two texts differ in white space at most.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// SealingWith returns the file in which the key with a prefix seals.
func (m *Master) SealingWith(prefix []byte) ([]byte, error) {
	return m.change(func(set *keySet, _ *file) error {
		if len(prefix) != 5 || set.find(binary.BigEndian.Uint32(prefix[1:])) < 0 {
			return compute.Errorf(compute.CodeConflict, "the key is gone: another rotation has ended").
				Named("rotation_in_progress")
		}
		set.Primary = binary.BigEndian.Uint32(prefix[1:])
		return nil
	})
}

// Join adds the keys of another server's file to the file at path, and uses it. It removes
// none. If seals is true, the key that seals in the other file seals from then on.
func (m *Master) Join(path string, data []byte, cluster compute.UUID, seals bool) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	joined, err := m.change(func(set *keySet, f *file) error {
		primary, err := set.merge(data, f)
		if seals {
			set.Primary = primary
		}
		return err
	})
	if err != nil {
		return err
	}
	return m.replace(path, joined, cluster)
}

// Retire removes the keys that do not seal from the file at path. Values that they sealed
// are lost. The code is conflict if another key seals than the one with the prefix.
func (m *Master) Retire(path string, prefix []byte, cluster compute.UUID) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	if !bytes.Equal(prefix, m.Prefix()) {
		return compute.Errorf(compute.CodeConflict, "another key seals: another rotation is going on").
			Named("rotation_in_progress")
	}
	left, err := m.change(func(set *keySet, _ *file) error {
		set.Keys = set.Keys[set.find(set.Primary):][:1]
		return nil
	})
	if err != nil {
		return err
	}
	return m.replace(path, left, cluster)
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
	m.changing.Lock()
	defer m.changing.Unlock()
	return m.replace(path, data, cluster)
}

func (m *Master) replace(path string, data []byte, cluster compute.UUID) error {
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
