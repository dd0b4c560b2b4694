package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth/compute"
)

const (
	accessType      = "at+jwt"
	accessLeeway    = 30 * time.Second // Between the clocks of two nodes.
	maxAccessToken  = 2 << 10          // Ours have about 500 bytes.
	maxKeyID        = 64
	tokenIDBytes    = 16
	accessHeaderLen = 3 // alg, kid, typ and nothing else.
)

// Access is the content of an access token.
type Access struct {
	User         compute.UserID
	Session      compute.UUID // The family of refresh tokens that it came with.
	TokenVersion uint64       // The user's, when it was signed.
	ID           string       // Its own.
	IssuedAt     time.Time
	ExpiresAt    time.Time
}

// AccessConfig has the settings that the signer and the verifier of access
// tokens share.
type AccessConfig struct {
	Issuer   string // The cluster that signs.
	Audience string // The API that accepts the token.
	TTL      time.Duration
	Now      func() time.Time
}

// accessClaims is the token's body.
type accessClaims struct {
	jwt.RegisteredClaims
	Session string  `json:"sid"`
	Version *uint64 `json:"ver"`
}

// Signer signs access tokens with one signing key.
type Signer struct {
	cfg     AccessConfig
	keyID   string
	private ed25519.PrivateKey
	random  io.Reader
}

// NewSigner returns the Signer of the key with an id.
func NewSigner(cfg AccessConfig, keyID string, private ed25519.PrivateKey, random io.Reader) *Signer {
	return &Signer{cfg: cfg, keyID: keyID, private: private, random: random}
}

// Sign returns an access token for a user's session, and when it expires.
func (s *Signer) Sign(user compute.UserID, session compute.UUID, version uint64) (string, time.Time, error) {
	id := make([]byte, tokenIDBytes)
	if _, err := io.ReadFull(s.random, id); err != nil {
		return "", time.Time{}, fmt.Errorf("sign access token: %w", err)
	}
	now := s.cfg.Now().UTC().Truncate(time.Second)
	expires := now.Add(s.cfg.TTL)
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, accessClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    s.cfg.Issuer,
			Audience:  jwt.ClaimStrings{s.cfg.Audience},
			Subject:   user.String(),
			ID:        base64.RawURLEncoding.EncodeToString(id),
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(expires),
		},
		Session: session.String(),
		Version: &version,
	})
	token.Header["typ"] = accessType
	token.Header["kid"] = s.keyID
	text, err := token.SignedString(s.private)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign access token: %w", err)
	}
	return text, expires, nil
}

// Verifier checks access tokens. Its methods may be called at the same time.
type Verifier struct {
	parser *jwt.Parser
	cfg    AccessConfig
	key    func(id string) (ed25519.PublicKey, bool)
}

// NewVerifier returns a Verifier that trusts the keys that key knows, and
// those alone: a token cannot bring its own.
func NewVerifier(cfg AccessConfig, key func(id string) (ed25519.PublicKey, bool)) *Verifier {
	return &Verifier{
		cfg: cfg,
		key: key,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
			jwt.WithIssuer(cfg.Issuer),
			jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(),
			jwt.WithLeeway(accessLeeway),
			jwt.WithTimeFunc(cfg.Now),
			jwt.WithStrictDecoding(),
		),
	}
}

// Verify returns the content of an access token of this cluster that has not
// expired. For other texts the error has the code unauthenticated. The caller
// checks the session and the token version against the state.
func (v *Verifier) Verify(text string) (Access, error) {
	access, err := v.verify(text)
	if errors.Is(err, jwt.ErrTokenExpired) {
		return Access{}, compute.Errorf(compute.CodeUnauthenticated,
			"The access token has expired.").Named("token_expired")
	}
	if err != nil {
		refusal := notValid("access token")
		refusal.Err = err
		return Access{}, refusal
	}
	return access, nil
}

func (v *Verifier) verify(text string) (Access, error) {
	if len(text) > maxAccessToken || strings.ContainsAny(text, "\r\n") { // base64 skips line ends.
		return Access{}, fmt.Errorf("a text of %d bytes is not an access token", len(text))
	}
	var claims accessClaims
	if _, err := v.parser.ParseWithClaims(text, &claims, v.keyOf); err != nil {
		return Access{}, err
	}
	user, err := compute.ParseUUID(claims.Subject)
	if err != nil || user.IsZero() {
		return Access{}, errors.New("the token names no user")
	}
	session, err := compute.ParseUUID(claims.Session)
	if err != nil || session.IsZero() {
		return Access{}, errors.New("the token names no session")
	}
	if claims.ID == "" || claims.IssuedAt == nil || claims.Version == nil || len(claims.Audience) != 1 {
		return Access{}, errors.New("the token lacks a claim")
	}
	if claims.ExpiresAt.Sub(claims.IssuedAt.Time) > v.cfg.TTL {
		return Access{}, errors.New("the token lives too long")
	}
	return Access{
		User: compute.UserID{UUID: user}, Session: session, TokenVersion: *claims.Version, ID: claims.ID,
		IssuedAt: claims.IssuedAt.UTC(), ExpiresAt: claims.ExpiresAt.UTC(),
	}, nil
}

// keyOf returns the key that the token's header names. We sign all tokens, so
// a header with anything that we do not write is not ours.
func (v *Verifier) keyOf(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	if token.Header["typ"] != accessType || len(token.Header) != accessHeaderLen || id == "" || len(id) > maxKeyID {
		return nil, errors.New("not the header of an access token")
	}
	key, known := v.key(id)
	if !known || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("unknown signing key")
	}
	return key, nil
}
