package auth_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"berth/api/auth"
	"berth/compute"
)

// bench is a signer, a verifier and a clock.
type bench struct {
	now     time.Time
	cfg     auth.AccessConfig
	keyID   string
	private ed25519.PrivateKey
	public  ed25519.PublicKey
	asked   []string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		now: time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC), keyID: "k1", private: private, public: public,
	}
	b.cfg = auth.AccessConfig{
		Issuer: "cluster-1", Audience: "api", TTL: 15 * time.Minute, Now: func() time.Time { return b.now },
	}
	return b
}

func (b *bench) verifier() *auth.Verifier {
	return auth.NewVerifier(b.cfg, func(id string) (ed25519.PublicKey, bool) {
		b.asked = append(b.asked, id)
		return b.public, id == b.keyID
	})
}

func user() compute.UserID { return compute.UserID{UUID: compute.UUID{1}} }

func session() compute.UUID { return compute.UUID{2} }

func TestAccessToken(t *testing.T) {
	b := newBench(t)
	text, expires, err := auth.NewSigner(b.cfg, b.keyID, b.private, rand.Reader).Sign(user(), session(), 7)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.verifier().Verify(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.User != user() || got.Session != session() || got.TokenVersion != 7 || got.ID == "" ||
		!got.ExpiresAt.Equal(expires) || !got.IssuedAt.Equal(b.now) || expires.Sub(b.now) != b.cfg.TTL {
		t.Errorf("got %+v", got)
	}
	for _, test := range []struct {
		after time.Duration
		ok    bool
	}{
		{0, true},
		{14 * time.Minute, true},
		{15*time.Minute + 29*time.Second, true},
		{15*time.Minute + 31*time.Second, false},
		{-29 * time.Second, true},
		{-31 * time.Second, false},
	} {
		later := *b
		later.now = b.now.Add(test.after)
		later.cfg.Now = func() time.Time { return later.now }
		if _, err := later.verifier().Verify(text); (err == nil) != test.ok {
			t.Errorf("after %v: got %v", test.after, err)
		}
	}
}

// parts are the parts of a token that a forger can set.
type parts struct {
	header, claims map[string]any
	sign           func(input string) []byte
}

// token returns the text of p.
func (p parts) token(t testing.TB) string {
	t.Helper()
	h, err := json.Marshal(p.header)
	if err != nil {
		t.Fatal(err)
	}
	c, err := json.Marshal(p.claims)
	if err != nil {
		t.Fatal(err)
	}
	input := b64(h) + "." + b64(c)
	return input + "." + b64(p.sign(input))
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// genuine returns the parts of a token that is good.
func (b *bench) genuine() parts {
	return parts{
		header: map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": b.keyID},
		claims: map[string]any{
			"iss": b.cfg.Issuer, "aud": []string{b.cfg.Audience}, "sub": user().String(),
			"sid": session().String(), "ver": 7, "jti": "x",
			"iat": b.now.Unix(), "exp": b.now.Add(b.cfg.TTL).Unix(),
		},
		sign: func(input string) []byte { return ed25519.Sign(b.private, []byte(input)) },
	}
}

// with returns m with a key changed; nil removes it.
func with(m map[string]any, key string, value any) map[string]any {
	m = maps.Clone(m)
	m[key] = value
	if value == nil {
		delete(m, key)
	}
	return m
}

func TestForgedAccessTokens(t *testing.T) {
	b := newBench(t)
	v := b.verifier()
	if _, err := v.Verify(b.genuine().token(t)); err != nil {
		t.Fatalf("the genuine one: %v", err)
	}
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	none := func(string) []byte { return nil }
	hs256 := func(key []byte) func(string) []byte {
		return func(input string) []byte {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(input))
			return mac.Sum(nil)
		}
	}
	type forgery struct {
		name string
		edit func(*parts)
	}
	header := func(name, key string, value any) forgery {
		return forgery{name, func(p *parts) { p.header = with(p.header, key, value) }}
	}
	claim := func(name, key string, value any) forgery {
		return forgery{name, func(p *parts) { p.claims = with(p.claims, key, value) }}
	}
	algorithm := func(name string, sign func(string) []byte) forgery {
		return forgery{"alg " + name, func(p *parts) { p.header, p.sign = with(p.header, "alg", name), sign }}
	}
	forgeries := []forgery{
		algorithm("none", none), algorithm("None", none), algorithm("NONE", none), algorithm("", none),
		algorithm("HS256", hs256(b.public)), algorithm("HS384", hs256(b.public)), algorithm("HS512", hs256(b.public)),
		algorithm("RS256", none), algorithm("ES256", none), algorithm("PS256", none), algorithm("eddsa", none),
		header("no alg", "alg", nil), header("alg is a number", "alg", 1), header("alg is a list", "alg", []string{"EdDSA"}),
		header("no typ", "typ", nil), header("typ JWT", "typ", "JWT"), header("typ AT+JWT", "typ", "AT+JWT"),
		header("no kid", "kid", nil), header("empty kid", "kid", ""), header("unknown kid", "kid", "k2"),
		header("kid is a path", "kid", "../../../../dev/null"), header("kid is SQL", "kid", "k1' OR '1'='1"),
		header("kid is a number", "kid", 1), header("kid is a list", "kid", []string{"k1"}),
		header("huge kid", "kid", strings.Repeat("k", 500)),
		header("brings its key", "jwk", map[string]string{
			"kty": "OKP", "crv": "Ed25519", "x": b64(stranger.Public().(ed25519.PublicKey)),
		}),
		header("names a key's URL", "jku", "https://evil.example/keys"),
		header("names a certificate", "x5u", "https://evil.example/cert"),
		header("brings a certificate", "x5c", []string{"AAAA"}),
		header("critical extension", "crit", []string{"exp"}),
		header("unencoded payload", "b64", false),
		{"stranger's key", func(p *parts) {
			p.sign = func(input string) []byte { return ed25519.Sign(stranger, []byte(input)) }
		}},
		{"no signature", func(p *parts) { p.sign = none }},
		{"zero signature", func(p *parts) { p.sign = func(string) []byte { return make([]byte, 64) } }},
		{"short signature", func(p *parts) { sign := p.sign; p.sign = func(s string) []byte { return sign(s)[:63] } }},
		{"long signature", func(p *parts) { sign := p.sign; p.sign = func(s string) []byte { return append(sign(s), 0) } }},
		{"malleable signature", func(p *parts) {
			sign := p.sign
			p.sign = func(s string) []byte { return addOrder(sign(s)) }
		}},
		claim("other issuer", "iss", "cluster-2"), claim("no issuer", "iss", nil),
		claim("other audience", "aud", []string{"web"}), claim("no audience", "aud", nil),
		claim("empty audience", "aud", []string{}), claim("many audiences", "aud", []string{"api", "web"}),
		claim("expired", "exp", b.now.Add(-time.Minute).Unix()), claim("no expiry", "exp", nil),
		claim("expiry is text", "exp", "tomorrow"), claim("expiry far away", "exp", b.now.Add(240*time.Hour).Unix()),
		claim("expiry beyond time", "exp", 1e300), claim("negative expiry", "exp", -1),
		claim("issued in the future", "iat", b.now.Add(time.Minute).Unix()), claim("no issue time", "iat", nil),
		claim("not yet valid", "nbf", b.now.Add(time.Minute).Unix()),
		claim("no user", "sub", nil), claim("empty user", "sub", ""), claim("user is a name", "sub", "root"),
		claim("zero user", "sub", "00000000-0000-0000-0000-000000000000"),
		claim("no session", "sid", nil), claim("session is a number", "sid", 1), claim("empty session", "sid", ""),
		claim("no version", "ver", nil), claim("negative version", "ver", -1), claim("version is text", "ver", "7"),
		claim("fractional version", "ver", 7.5), claim("no token id", "jti", nil),
		claim("huge", "pad", strings.Repeat("x", 1<<20)),
	}
	for part, fields := range map[bool][]string{true: {"alg", "typ", "kid"}, false: {"iss", "aud", "sub", "sid", "ver", "exp", "iat"}} {
		for _, field := range fields {
			for _, value := range []any{true, false, -1, 1e30, 0.5, "", " ", "null", []any{}, []any{nil}, map[string]any{"a": 1}, json.RawMessage("null")} {
				edit := claim
				if part {
					edit = header
				}
				forgeries = append(forgeries, edit(fmt.Sprintf("%s is %v", field, value), field, value))
			}
		}
	}
	t.Logf("measured: %d forged access tokens", len(forgeries))
	for _, f := range forgeries {
		p := b.genuine()
		f.edit(&p)
		b.asked = nil
		_, err := v.Verify(p.token(t))
		if compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%s: got %v, want unauthenticated", f.name, err)
		}
		if m := compute.MessageOf(err); m != "The access token is not valid." && m != "The access token has expired." {
			t.Errorf("%s: the caller is told %q", f.name, m)
		}
		for _, id := range b.asked {
			if len(id) > 64 {
				t.Errorf("%s: a key id of %d bytes was looked up", f.name, len(id))
			}
		}
	}
	if len(forgeries) < 150 {
		t.Errorf("only %d forgeries", len(forgeries))
	}
}

// addOrder returns the signature with the group's order added to its scalar:
// the same equation, another text.
func addOrder(sig []byte) []byte {
	order := []byte{
		0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
	}
	carry := 0
	for i, o := range order {
		sum := int(sig[32+i]) + int(o) + carry
		sig[32+i], carry = byte(sum), sum>>8
	}
	return sig
}

func TestAccessTokensThatAreNone(t *testing.T) {
	b := newBench(t)
	v := b.verifier()
	good := b.genuine().token(t)
	segments := strings.Split(good, ".")
	for name, text := range map[string]string{
		"empty":             "",
		"dots":              "..",
		"two segments":      segments[0] + "." + segments[1],
		"four segments":     good + ".x",
		"many dots":         strings.Repeat(".", 1000),
		"padded":            good + "==",
		"space in front":    " " + good,
		"line feed behind":  good + "\n",
		"standard base64":   segments[0] + "." + segments[1] + "." + strings.Repeat("+", 86),
		"no JSON":           b64([]byte("{")) + "." + segments[1] + "." + segments[2],
		"null header":       b64([]byte("null")) + "." + segments[1] + "." + segments[2],
		"null claims":       segments[0] + "." + b64([]byte("null")) + "." + segments[2],
		"claims are a list": segments[0] + "." + b64([]byte("[]")) + "." + segments[2],
		"other claims":      segments[0] + "." + b64([]byte(`{"sub":"x"}`)) + "." + segments[2],
		"trailing bits":     trailingBits(good),
		"4 MiB":             strings.Repeat("A", 4<<20),
		"an API key":        mustKey(t).Text,
	} {
		if _, err := v.Verify(text); compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%s: got %v, want unauthenticated", name, err)
		}
	}
	// Claims and header are given twice. Only signed ones count, and only the
	// cluster signs.
	twice := b64([]byte(`{"alg":"none","alg":"EdDSA","typ":"at+jwt","kid":"k1"}`)) + "." + segments[1] + "." + segments[2]
	if _, err := v.Verify(twice); err == nil {
		t.Error("a header that we did not sign was accepted")
	}
}

// trailingBits returns another spelling of the token's signature: 64 bytes
// take 86 characters, of which the last has four bits to spare.
func trailingBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last|1])
}

func TestAllBitsOfAnAccessTokenCount(t *testing.T) {
	b := newBench(t)
	v := b.verifier()
	good := b.genuine().token(t)
	for i := range len(good) {
		bad := []byte(good)
		bad[i] ^= 1
		if _, err := v.Verify(string(bad)); err == nil {
			t.Fatalf("accepted with character %d as %q", i, bad[i])
		}
	}
}

func TestExpiredTokenIsNamed(t *testing.T) {
	b := newBench(t)
	text := b.genuine().token(t)
	b.now = b.now.Add(time.Hour)
	_, err := b.verifier().Verify(text)
	if e, ok := errors.AsType[*compute.Error](err); !ok || e.Detail != "token_expired" {
		t.Errorf("got %v, want the name token_expired", err)
	}
}

func TestKeyOfWrongSize(t *testing.T) {
	b := newBench(t)
	v := auth.NewVerifier(b.cfg, func(string) (ed25519.PublicKey, bool) { return nil, true })
	if _, err := v.Verify(b.genuine().token(t)); compute.CodeOf(err) != compute.CodeUnauthenticated {
		t.Errorf("got %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	b := newBench(f)
	v := b.verifier()
	good := b.genuine().token(f)
	f.Add(good[1:])
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := v.Verify(text); err == nil && text != good {
			t.Errorf("accepted %q", text)
		}
	})
}
