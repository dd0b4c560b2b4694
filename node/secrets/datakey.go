package secrets

import (
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/tink"

	"berth/compute"
)

// DataKey seals the values of one organization. Its methods are safe for concurrent
// use.
type DataKey struct{ aead tink.AEAD }

// NewDataKey returns a fresh key, sealed with the master key for context.
func (m *Master) NewDataKey(context []byte) ([]byte, error) {
	keyset, err := newKeyset(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make data key: %w", err)
	}
	return m.Seal(keyset, context)
}

// OpenDataKey returns the key that NewDataKey returned for the same context.
func (m *Master) OpenDataKey(sealed, context []byte) (*DataKey, error) {
	keyset, err := m.Unseal(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("open data key: %w", err)
	}
	handle, err := readKeyset(keyset)
	if err != nil {
		return nil, fmt.Errorf("open data key: %w", err)
	}
	k := new(DataKey)
	if k.aead, err = aead.New(handle); err != nil {
		return nil, fmt.Errorf("open data key: %w", err)
	}
	return k, nil
}

// Seal encrypts a value. Unseal returns it only with the same context.
func (k *DataKey) Seal(value string, context []byte) ([]byte, error) {
	if len(value) > maxSealable {
		return nil, compute.Errorf(compute.CodeTooLarge, "at most %d bytes can be sealed", maxSealable)
	}
	sealed, err := k.aead.Encrypt([]byte(value), context)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

// Unseal decrypts what Seal returned for the same context.
func (k *DataKey) Unseal(sealed, context []byte) (string, error) {
	value, err := k.aead.Decrypt(sealed, context)
	if err != nil {
		return "", fmt.Errorf("unseal: %w", err)
	}
	return string(value), nil
}
