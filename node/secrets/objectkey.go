package secrets

import (
	"fmt"

	"github.com/tink-crypto/tink-go/v2/daead"
	"github.com/tink-crypto/tink-go/v2/tink"

	"berth/compute"
)

// ObjectKey encrypts the objects of one organization with AES-256-SIV: the same bytes
// become the same ciphertext, which is stored once. Another organization's key makes
// another one of them, so that nothing shows who has the same. Its methods are safe for
// concurrent use.
type ObjectKey struct{ daead tink.DeterministicAEAD }

// NewObjectKey returns a fresh key, sealed with the master key for context.
func (m *Master) NewObjectKey(context []byte) ([]byte, error) {
	keyset, err := newKeyset(daead.AESSIVKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make object key: %w", err)
	}
	return m.Seal(keyset, context)
}

// OpenObjectKey returns the key that NewObjectKey returned for the same context.
func (m *Master) OpenObjectKey(sealed, context []byte) (*ObjectKey, error) {
	keyset, err := m.Unseal(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("open object key: %w", err)
	}
	handle, err := readKeyset(keyset)
	if err != nil {
		return nil, fmt.Errorf("open object key: %w", err)
	}
	k := new(ObjectKey)
	if k.daead, err = daead.New(handle); err != nil {
		return nil, fmt.Errorf("open object key: %w", err)
	}
	return k, nil
}

// Seal encrypts data. Open returns it only with the same context.
func (k *ObjectKey) Seal(data, context []byte) ([]byte, error) {
	if len(data) > maxSealable {
		return nil, compute.Errorf(compute.CodeTooLarge, "at most %d bytes can be sealed", maxSealable)
	}
	sealed, err := k.daead.EncryptDeterministically(data, context)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

// Open decrypts what Seal returned for the same context.
func (k *ObjectKey) Open(sealed, context []byte) ([]byte, error) {
	data, err := k.daead.DecryptDeterministically(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return data, nil
}
