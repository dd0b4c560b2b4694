package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"berth/compute"
)

// An API key is "lk_", ten characters to look it up by, 43 characters of
// secret (256 bits) and six of checksum, all base62.
const (
	keyMark     = "lk_"
	lookupChars = 10
	secretChars = 43
	crcChars    = 6
	prefixChars = 8
	keyChars    = len(keyMark) + lookupChars + secretChars + crcChars

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// APIKey is an API key that has the right form. Text is the secret itself; the
// state keeps the other fields.
type APIKey struct {
	Text   string
	Lookup string       // By which its record is found.
	Prefix string       // By which people recognise it.
	Hash   compute.Hash // SHA-256 of Text.
}

// NewAPIKey returns a new API key.
func NewAPIKey(random io.Reader) (APIKey, error) {
	body, err := randomBase62(random, lookupChars+secretChars)
	if err != nil {
		return APIKey{}, fmt.Errorf("make API key: %w", err)
	}
	text := keyMark + body
	return keyOf(text + keyChecksum(text)), nil
}

// Passwords that are made for a user are groups of letters and digits that people
// can read to each other. 20 characters of 31 kinds have 99 bits.
const (
	passwordChars  = "abcdefghjkmnpqrstuvwxyz23456789"
	passwordGroups = 4
	passwordGroup  = 5
)

// NewPassword returns a password that nobody can guess.
func NewPassword(random io.Reader) (string, error) {
	digits, err := randomBase62(random, passwordGroups*passwordGroup)
	if err != nil {
		return "", fmt.Errorf("make password: %w", err)
	}
	var text strings.Builder
	for i := range len(digits) {
		if i > 0 && i%passwordGroup == 0 {
			text.WriteByte('-')
		}
		n := strings.IndexByte(base62, digits[i])
		text.WriteByte(passwordChars[n%len(passwordChars)]) // 62 is twice 31: each is equally likely.
	}
	return text.String(), nil
}

// ParseAPIKey returns the key that text is, or the code unauthenticated when
// no key was ever made that reads so. It says nothing about whether the key
// exists.
func ParseAPIKey(text string) (APIKey, error) {
	if len(text) != keyChars || !strings.HasPrefix(text, keyMark) || !isBase62(text[len(keyMark):]) {
		return APIKey{}, notValid("API key")
	}
	if body := text[:keyChars-crcChars]; text[len(body):] != keyChecksum(body) {
		return APIKey{}, notValid("API key")
	}
	return keyOf(text), nil
}

// LooksLikeAPIKey reports whether a bearer token claims to be an API key.
func LooksLikeAPIKey(text string) bool { return strings.HasPrefix(text, keyMark) }

// Matches reports whether hash is the record of the key k. It takes constant time.
func (k APIKey) Matches(hash compute.Hash) bool {
	return subtle.ConstantTimeCompare(k.Hash[:], hash[:]) == 1
}

// keyOf returns the parts of a key's text.
func keyOf(text string) APIKey {
	return APIKey{
		Text:   text,
		Lookup: text[len(keyMark) : len(keyMark)+lookupChars],
		Prefix: text[:prefixChars],
		Hash:   sha256.Sum256([]byte(text)),
	}
}

// keyChecksum returns the CRC32 of body as six base62 characters.
func keyChecksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var b [crcChars]byte
	for i := crcChars - 1; i >= 0; i-- {
		b[i] = base62[sum%62]
		sum /= 62
	}
	return string(b[:])
}

// randomBase62 returns n characters, each equally likely.
func randomBase62(random io.Reader, n int) (string, error) {
	const fair = 256 - 256%62 // Bytes from here on would favour the first characters.
	text := make([]byte, 0, n)
	buf := make([]byte, 64)
	for len(text) < n {
		if _, err := io.ReadFull(random, buf); err != nil {
			return "", err
		}
		for _, b := range buf {
			if b < fair && len(text) < n {
				text = append(text, base62[b%62])
			}
		}
	}
	return string(text), nil
}

func isBase62(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(base62, s[i]) < 0 {
			return false
		}
	}
	return true
}

// notValid is the answer to a malformed credential.
func notValid(what string) *compute.Error {
	return compute.Errorf(compute.CodeUnauthenticated, "The %s is not valid.", what)
}

// KeyDigest returns a digest of the hash of an API key. Credentials that are made with the key
// carry it, and so end when the key gets another value.
func KeyDigest(hash compute.Hash) compute.UUID {
	sum := sha256.Sum256(append([]byte("key value v1 "), hash[:]...))
	return compute.UUID(sum[:16])
}
