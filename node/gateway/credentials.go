package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"berth/api/auth"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Lifetime is how long credentials are good.
const Lifetime = 12 * time.Hour

const (
	accessPrefix = "ASIA"           // Clients and versitygw know temporary credentials by it.
	tokenDomain  = "s3 session v1 " // Separates signatures from others of the same key.
	grantBytes   = 5 * 16           // Bytes of an encoded grant,
	valueBytes   = grantBytes + 16  // and of one with the digest of a key's value.
)

// Credentials are the keys and the token of a client of S3.
type Credentials struct {
	Access, Secret, Token string
	ExpiresAt             time.Time
}

// Keys makes and checks credentials.
type Keys struct {
	Secret []byte // The same on every node.
	Now    func() time.Time
}

// grant says whose rights credentials have.
type grant struct {
	user    compute.UserID
	key     compute.KeyID
	org     compute.OrgID
	session compute.UUID // Id of a login; zero for none.
	version uint64       // Version of the user's tokens.
	until   int64        // Unix seconds.
	value   compute.UUID // Digest of the key's value; zero for credentials that do not end with it.
}

// Mint returns credentials with the rights of an actor in an organization. They end with the
// actor's login, or with the value of the key that the actor has used, of which key is the hash;
// zero while older nodes refuse that form.
func (k Keys) Mint(actor command.Actor, session compute.UUID, key compute.Hash) Credentials {
	g := grant{user: actor.User, key: actor.Key, org: actor.Org, session: session, version: actor.TokenVersion}
	if !g.key.IsZero() && key != (compute.Hash{}) {
		g.value = auth.KeyDigest(key)
	}
	return k.mint(g, Lifetime)
}

// MintFor returns the same for an execution, which ends with neither.
func (k Keys) MintFor(actor command.Actor, lifetime time.Duration) Credentials {
	return k.mint(grant{user: actor.User, key: actor.Key, org: actor.Org, version: actor.TokenVersion}, lifetime)
}

func (k Keys) mint(g grant, lifetime time.Duration) Credentials {
	var random [15]byte
	_, _ = rand.Read(random[:]) // It never fails.
	until := k.Now().Add(lifetime).Truncate(time.Second)
	c := Credentials{
		Access:    accessPrefix + base32.StdEncoding.EncodeToString(random[:])[:16],
		ExpiresAt: until,
	}
	g.until = until.Unix()
	c.Secret = k.secretOf(c.Access)
	c.Token = auth.Sealed(k.Secret, tokenDomain+c.Access, g.encode())
	return c
}

// secretOf returns the secret of an access key.
func (k Keys) secretOf(access string) string {
	mac := hmac.New(sha256.New, k.Secret)
	mac.Write([]byte("s3 secret v1 " + access))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:30])
}

func (g grant) encode() []byte {
	out := make([]byte, 0, valueBytes)
	out = append(out, g.user.UUID[:]...)
	out = append(out, g.key.UUID[:]...)
	out = append(out, g.org.UUID[:]...)
	out = append(out, g.session[:]...)
	out = binary.BigEndian.AppendUint64(out, g.version)
	out = binary.BigEndian.AppendUint64(out, uint64(g.until))
	if !g.value.IsZero() {
		out = append(out, g.value[:]...)
	}
	return out
}

// open returns the grant of a session token.
func (k Keys) open(access, token string) (g grant, ok bool) {
	if !strings.HasPrefix(access, accessPrefix) {
		return g, false
	}
	data, ok := auth.Unsealed(k.Secret, tokenDomain+access, token)
	if !ok || len(data) != grantBytes && len(data) != valueBytes {
		return g, false
	}
	g.user.UUID, g.key.UUID, g.org.UUID = compute.UUID(data[:16]), compute.UUID(data[16:32]), compute.UUID(data[32:48])
	g.session = compute.UUID(data[48:64])
	g.version = binary.BigEndian.Uint64(data[64:])
	g.until = int64(binary.BigEndian.Uint64(data[72:]))
	copy(g.value[:], data[grantBytes:])
	return g, k.Now().Unix() < g.until
}

// actor returns whom a grant lets act, as far as that one still has the rights of then. A view
// that is not current may know neither a new login nor the newest value of a key.
func (g grant) actor(view *fsm.View, now time.Time, current bool) (command.Actor, bool) {
	user, ok := view.User(g.user)
	if !ok || !user.Active {
		return command.Actor{}, false
	}
	if _, member := view.Membership(g.org, g.user); !member {
		return command.Actor{}, false
	}
	a := command.Actor{User: g.user, Key: g.key, Org: g.org, TokenVersion: g.version}
	if g.key.IsZero() {
		live, known := view.Session(g.session)
		ended := !g.session.IsZero() && !live && (known || current)
		return a, user.TokenVersion == g.version && !ended
	}
	key, ok := view.Key(g.org, g.key)
	good := ok && key.Active && (key.ExpiresAt.IsZero() || key.ExpiresAt > compute.InstantOf(now)) &&
		compute.Allows(key.Scopes, compute.ScopeStorage) &&
		(!current || g.value.IsZero() || g.value == auth.KeyDigest(key.Hash))
	return a, good
}

// BucketOf returns the name of an organization's bucket.
func BucketOf(org compute.OrgID) string { return "org-" + org.String() }
