package mirror

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"berth/compute"
)

// KeyBytes is the length of a Mirror's key.
const KeyBytes = 2 * chacha20poly1305.KeySize

// sealVersion is the first byte of each copy. A nonce and the ciphertext follow.
const sealVersion = 1

// sealer names and encrypts copies.
type sealer struct {
	aead  cipher.AEAD
	names []byte // The key of names.
}

func newSealer(key []byte) (*sealer, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("a key of %d bytes", len(key))
	}
	aead, err := chacha20poly1305.NewX(key[:chacha20poly1305.KeySize])
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead, names: key[chacha20poly1305.KeySize:]}, nil
}

// name returns the name of the copy of a blob: HMAC-SHA-256 of its hash.
func (s *sealer) name(hash compute.Hash) compute.Hash {
	mac := hmac.New(sha256.New, s.names)
	mac.Write(hash[:])
	return compute.Hash(mac.Sum(nil))
}

// seal encrypts a blob with XChaCha20-Poly1305, whose random nonces of 192 bits do not
// repeat (RFC 8439 and draft-irtf-cfrg-xchacha-03). Its hash is authenticated with it.
func (s *sealer) seal(hash compute.Hash, data []byte) []byte {
	start := 1 + s.aead.NonceSize()
	out := make([]byte, start, start+len(data)+s.aead.Overhead())
	out[0] = sealVersion
	_, _ = rand.Read(out[1:start]) // It never fails.
	return s.aead.Seal(out, out[1:start], data, hash[:])
}

// open decrypts a blob.
func (s *sealer) open(hash compute.Hash, sealed []byte) ([]byte, error) {
	start := 1 + s.aead.NonceSize()
	if len(sealed) < start || sealed[0] != sealVersion {
		return nil, compute.Errorf(compute.CodeUnavailable, "The copy of blob %x in the object store is damaged.", hash[:8])
	}
	data, err := s.aead.Open(nil, sealed[1:start], sealed[start:], hash[:])
	if err != nil || sha256.Sum256(data) != hash {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The copy of blob %x in the object store is damaged, or of another master key.", hash[:8])
	}
	return data, nil
}
