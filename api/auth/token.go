package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"

	"berth/compute"
)

// refreshBytes is the size of a refresh token.
const refreshBytes = 32

// strict64 is base64url in which every text has one spelling.
func strict64() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// NewRefreshToken returns the first refresh token of a login.
func NewRefreshToken(random io.Reader) (string, error) {
	b := make([]byte, refreshBytes)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("make refresh token: %w", err)
	}
	return strict64().EncodeToString(b), nil
}

// NextRefreshToken returns the token that follows parent. It is always the
// same, so that a client whose answer was lost gets it by asking again, and no
// node has to keep it: only a holder of key can compute it.
func NextRefreshToken(key []byte, parent string) (string, error) {
	b, err := parseRefreshToken(parent)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	mac.Write([]byte("next"))
	return strict64().EncodeToString(mac.Sum(nil)), nil
}

// HashRefreshToken returns the hash of a refresh token, which the state keeps.
// The error has the code unauthenticated if text cannot be one.
func HashRefreshToken(text string) (compute.Hash, error) {
	if _, err := parseRefreshToken(text); err != nil {
		return compute.Hash{}, err
	}
	return sha256.Sum256([]byte(text)), nil
}

func parseRefreshToken(text string) ([]byte, error) {
	if len(text) != strict64().EncodedLen(refreshBytes) {
		return nil, notValid("refresh token")
	}
	b, err := strict64().DecodeString(text)
	if err != nil || len(b) != refreshBytes {
		return nil, notValid("refresh token")
	}
	return b, nil
}

// StreamToken returns the capability to read one execution's output. It is the
// same on every node that has the stream key.
func StreamToken(key []byte, execution compute.ExecutionID) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(execution.UUID[:])
	return strict64().EncodeToString(mac.Sum(nil))
}

// CheckStreamToken reports whether text is the execution's stream token. It compares
// in constant time.
func CheckStreamToken(key []byte, execution compute.ExecutionID, text string) bool {
	return hmac.Equal([]byte(StreamToken(key, execution)), []byte(text))
}

// Sealed returns data that only holders of the key can make, for one purpose. It is
// readable.
func Sealed(key []byte, purpose string, data []byte) string {
	return strict64().EncodeToString(append(sealOf(key, purpose, data), data...))
}

// Unsealed returns the data in text if Sealed made it for the purpose.
func Unsealed(key []byte, purpose, text string) ([]byte, bool) {
	sealed, err := strict64().DecodeString(text)
	if err != nil || len(sealed) < sha256.Size {
		return nil, false
	}
	data := sealed[sha256.Size:]
	return data, hmac.Equal(sealed[:sha256.Size], sealOf(key, purpose, data))
}

func sealOf(key []byte, purpose string, data []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write(data)
	return mac.Sum(nil)
}
