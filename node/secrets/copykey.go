package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"

	"berth/compute"
)

// CopyKey encrypts and names copies of blobs that leave the cluster. It is derived from the
// master key, and stays the same when that one rotates. Its methods are safe for concurrent
// use.
type CopyKey struct {
	aead  *subtle.XChaCha20Poly1305
	names []byte
}

// CopyKey returns the key for one purpose, the same on every server.
func (m *Master) CopyKey(purpose string) (*CopyKey, error) {
	key := m.Derive(purpose, 2*hmacKeyBytes)
	aead, err := subtle.NewXChaCha20Poly1305(key[:hmacKeyBytes])
	if err != nil {
		return nil, fmt.Errorf("derive copy key: %w", err)
	}
	return &CopyKey{aead: aead, names: key[hmacKeyBytes:]}, nil
}

// Name returns the name of the copy of a blob: HMAC-SHA-256 of its hash.
func (k *CopyKey) Name(hash compute.Hash) compute.Hash {
	mac := hmac.New(sha256.New, k.names)
	mac.Write(hash[:])
	return compute.Hash(mac.Sum(nil))
}

// Seal encrypts data with XChaCha20-Poly1305, whose random nonces of 192 bits do not repeat
// (draft-irtf-cfrg-xchacha-03). The result is the nonce, the ciphertext and the tag.
func (k *CopyKey) Seal(data, context []byte) ([]byte, error) {
	sealed, err := k.aead.Encrypt(data, context)
	if err != nil {
		return nil, fmt.Errorf("seal copy: %w", err)
	}
	return sealed, nil
}

// Open decrypts what Seal returned for the same context.
func (k *CopyKey) Open(sealed, context []byte) ([]byte, error) {
	data, err := k.aead.Decrypt(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("open copy: %w", err)
	}
	return data, nil
}
