package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/daead"
	"github.com/tink-crypto/tink-go/v2/daead/aessiv"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"berth/compute"
)

// ObjectKey encrypts the objects of one organization deterministically: the same bytes
// become the same ciphertext, which is stored once. Another organization's key makes
// another one of them, so that nothing shows who has the same. Its methods are safe for
// concurrent use.
//
// Seal uses AES-256-SIV. SealChunk is faster and for much data: HMAC-SHA-256 of the
// plaintext is the synthetic IV, of which another HMAC-SHA-256 makes the key that
// AES-256-GCM encrypts this plaintext with, and no other. docs/adr/0009-storage.md has
// the argument.
type ObjectKey struct {
	daead tink.DeterministicAEAD
	ivs   []byte // The HMAC key that makes synthetic IVs.
	keys  []byte // The HMAC key that makes keys of synthetic IVs.
}

// SealChunk returns version 1, IV 16, the ciphertext, tag 16. The first byte of Seal's
// is tink's 1.
const (
	chunkVersion = 2
	chunkHead    = 1 + chunkIV
	chunkIV      = 16
	hmacKeyBytes = 32

	chunkPurpose = "berth chunks of objects, version 2" // Names the keys that are derived.
)

// errChunk is the error for a chunk that SealChunk did not return with this key.
var errChunk = errors.New("the ciphertext is damaged, or another key's")

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
	if err := k.derive(handle); err != nil {
		return nil, fmt.Errorf("open object key: %w", err)
	}
	return k, nil
}

// derive makes the keys of chunks, always the same ones, of the key of AES-256-SIV.
func (k *ObjectKey) derive(handle *keyset.Handle) error {
	primary, err := handle.Primary()
	if err != nil {
		return err
	}
	siv, ok := primary.Key().(*aessiv.Key)
	if !ok {
		return fmt.Errorf("a key of another kind: %T", primary.Key())
	}
	secret := siv.KeyBytes().Data(insecuresecretdataaccess.Token{})
	made, err := hkdf.Key(sha256.New, secret, nil, chunkPurpose, 2*hmacKeyBytes)
	if err != nil {
		return err
	}
	k.ivs, k.keys = made[:hmacKeyBytes], made[hmacKeyBytes:]
	return nil
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

// SealChunk encrypts data and appends the ciphertext to dst, which data does not overlap.
// OpenChunk returns the data only with the same context. The synthetic IV differs for other
// data.
func (k *ObjectKey) SealChunk(dst, data, context []byte) (sealed []byte, iv [chunkIV]byte, err error) {
	if len(data) > maxSealable || len(context) > 255 {
		return nil, iv, compute.Errorf(compute.CodeTooLarge, "at most %d bytes can be sealed", maxSealable)
	}
	mac := hmac.New(sha256.New, k.ivs)
	mac.Write([]byte{byte(len(context))})
	mac.Write(context)
	mac.Write(data)
	iv = [chunkIV]byte(mac.Sum(nil))
	gcm, err := k.cipherOf(iv)
	if err != nil {
		return nil, iv, fmt.Errorf("seal: %w", err)
	}
	sealed = slices.Grow(dst, chunkHead+len(data)+gcm.Overhead())
	sealed = append(append(sealed, chunkVersion), iv[:]...)
	return gcm.Seal(sealed, make([]byte, gcm.NonceSize()), data, additional(context)), iv, nil
}

// OpenChunk decrypts what SealChunk or Seal returned for the same context, and overwrites
// sealed. If the synthetic IV is not zero, it accepts only the data that this is the IV of.
func (k *ObjectKey) OpenChunk(sealed, context []byte, iv [chunkIV]byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != chunkVersion {
		if iv != ([chunkIV]byte{}) {
			return nil, fmt.Errorf("open: %w", errChunk)
		}
		return k.Open(sealed, context)
	}
	if len(sealed) < chunkHead || iv != ([chunkIV]byte{}) && [chunkIV]byte(sealed[1:]) != iv {
		return nil, fmt.Errorf("open: %w", errChunk)
	}
	gcm, err := k.cipherOf([chunkIV]byte(sealed[1:]))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	text := sealed[chunkHead:]
	data, err := gcm.Open(text[:0], make([]byte, gcm.NonceSize()), text, additional(context))
	if err != nil {
		return nil, fmt.Errorf("open: %w", errChunk)
	}
	return data, nil
}

// cipherOf returns what encrypts the one plaintext that has a synthetic IV. Its key is of
// that alone, so that its nonce may be constant.
func (k *ObjectKey) cipherOf(iv [chunkIV]byte) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, k.keys)
	mac.Write(iv[:])
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// additional returns what is authenticated beside a chunk.
func additional(context []byte) []byte { return append([]byte{chunkVersion}, context...) }
