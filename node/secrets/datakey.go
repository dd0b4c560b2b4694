package secrets

import (
	"bytes"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
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

// RotateDataKey returns a sealed data key with another key, which seals from then on. Values
// that earlier keys sealed can still be read.
func (m *Master) RotateDataKey(sealed, context []byte) ([]byte, error) {
	return m.changeDataKey(sealed, context, func(manager *keyset.Manager, _ *keyset.Handle) error {
		id, err := manager.Add(aead.AES256GCMKeyTemplate())
		if err != nil {
			return err
		}
		return manager.SetPrimary(id)
	})
}

// RetireDataKeys returns a sealed data key with only the key that seals. Values that
// earlier keys sealed are lost.
func (m *Master) RetireDataKeys(sealed, context []byte) ([]byte, error) {
	return m.changeDataKey(sealed, context, func(manager *keyset.Manager, handle *keyset.Handle) error {
		info := handle.KeysetInfo()
		for _, k := range info.GetKeyInfo() {
			if k.GetKeyId() == info.GetPrimaryKeyId() {
				continue
			}
			if err := manager.Delete(k.GetKeyId()); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeDataKey returns a sealed data key that change has changed, sealed again.
func (m *Master) changeDataKey(
	sealed, context []byte, change func(*keyset.Manager, *keyset.Handle) error,
) ([]byte, error) {
	text, err := m.Unseal(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("open data key: %w", err)
	}
	handle, err := readKeyset(text)
	if err != nil {
		return nil, fmt.Errorf("open data key: %w", err)
	}
	manager := keyset.NewManagerFromHandle(handle)
	if err := change(manager, handle); err != nil {
		return nil, fmt.Errorf("change data key: %w", err)
	}
	if handle, err = manager.Handle(); err != nil {
		return nil, fmt.Errorf("change data key: %w", err)
	}
	var out bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&out)); err != nil {
		return nil, fmt.Errorf("write data key: %w", err)
	}
	return m.Seal(out.Bytes(), context)
}
