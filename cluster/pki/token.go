package pki

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"berth/compute"
)

// Lengths of the parts of a join token.
const (
	tokenIDLength     = 10
	tokenSecretLength = 43 // 43 base62 digits are 256 bits.
)

const (
	tokenPrefix = "bjt"
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// JoinToken admits a new node: bjt_<id>_<secret>_<pin of the authority>. The
// state stores ID and SecretHash; the text is shown once.
type JoinToken struct {
	ID     string
	Secret string
	Pin    string
}

// NewJoinToken creates a token for the cluster of ca.
func NewJoinToken(random io.Reader, ca *CA) (JoinToken, error) {
	id, err := randomText(random, tokenIDLength)
	if err != nil {
		return JoinToken{}, fmt.Errorf("make join token: %w", err)
	}
	secret, err := randomText(random, tokenSecretLength)
	if err != nil {
		return JoinToken{}, fmt.Errorf("make join token: %w", err)
	}
	return JoinToken{ID: id, Secret: secret, Pin: ca.Pin()}, nil
}

// ParseJoinToken parses a token, ignoring surrounding white space such as a
// file's last newline. The error never contains the text.
func ParseJoinToken(text string) (JoinToken, error) {
	parts := strings.Split(strings.TrimSpace(text), "_")
	if len(parts) != 4 || parts[0] != tokenPrefix ||
		!IsTokenID(parts[1]) ||
		!isText(parts[2], tokenSecretLength, base62) ||
		!isText(parts[3], pinLength, "0123456789abcdef") {
		return JoinToken{}, compute.Errorf(compute.CodeInvalid, "The join token is malformed.")
	}
	return JoinToken{ID: parts[1], Secret: parts[2], Pin: parts[3]}, nil
}

// IsTokenID reports whether id can be the ID of a join token.
func IsTokenID(id string) bool { return isText(id, tokenIDLength, base62) }

// String returns the text of the token. It is a secret.
func (t JoinToken) String() string {
	return strings.Join([]string{tokenPrefix, t.ID, t.Secret, t.Pin}, "_")
}

// SecretHash returns the hash of the secret, which the state stores.
func (t JoinToken) SecretHash() compute.Hash { return sha256.Sum256([]byte(t.Secret)) }

// randomText returns n uniformly distributed base62 digits.
func randomText(random io.Reader, n int) (string, error) {
	text := make([]byte, 0, n)
	var b [64]byte
	for len(text) < n {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return "", err
		}
		for _, v := range b {
			// 248 is the largest multiple of 62 in a byte.
			if v < 248 && len(text) < n {
				text = append(text, base62[v%62])
			}
		}
	}
	return string(text), nil
}

func isText(s string, length int, alphabet string) bool {
	return len(s) == length && strings.Trim(s, alphabet) == ""
}
