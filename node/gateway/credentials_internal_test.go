package gateway

import (
	"encoding/base64"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/versity/versitygw/auth"

	apiauth "berth/api/auth"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/statetest"
)

func testKeys(secret string, now *time.Time) Keys {
	return Keys{Secret: []byte(secret), Now: func() time.Time { return *now }}
}

// TestCredentials makes credentials that are good for their time, on every node, and
// nothing else.
func TestCredentials(t *testing.T) {
	now := time.Unix(1e9, 0)
	keys := testKeys("the same on every node, of 32 bytes", &now)
	actor := command.Actor{
		User: compute.UserID{UUID: compute.UUID{1}}, Key: compute.KeyID{UUID: compute.UUID{2}},
		Org: compute.OrgID{UUID: compute.UUID{3}}, TokenVersion: 4,
	}
	c := keys.Mint(actor, compute.UUID{5}, compute.Hash{6})
	want := grant{
		actor.User, actor.Key, actor.Org, compute.UUID{5}, 4, now.Add(Lifetime).Unix(), apiauth.KeyDigest(compute.Hash{6}),
	}
	if g, ok := testKeys("the same on every node, of 32 bytes", &now).open(c.Access, c.Token); !ok || g != want {
		t.Errorf("on another node they are %+v, %t", g, ok)
	}
	if c.ExpiresAt != now.Add(Lifetime) || c.Secret == keys.Mint(actor, compute.UUID{5}, compute.Hash{6}).Secret {
		t.Errorf("they end at %s, or are made twice", c.ExpiresAt)
	}
	other := keys.MintFor(actor, time.Minute)
	changed, err := base64.RawURLEncoding.DecodeString(c.Token)
	if err != nil {
		t.Fatal(err)
	}
	changed[len(changed)-50] ^= 1
	for name, test := range map[string]struct {
		keys          Keys
		access, token string
		pass          time.Duration
	}{
		"the access key of others":   {keys, other.Access, c.Token, 0},
		"the token of others":        {keys, c.Access, other.Token, 0},
		"no token":                   {keys, c.Access, "", 0},
		"no access key":              {keys, "", c.Token, 0},
		"a lasting access key":       {keys, "AKIA" + c.Access[4:], c.Token, 0},
		"a changed token":            {keys, c.Access, base64.RawURLEncoding.EncodeToString(changed), 0},
		"a token that is cut":        {keys, c.Access, c.Token[:len(c.Token)-4], 0},
		"another cluster's":          {testKeys("another one, of 32 bytes or more...", &now), c.Access, c.Token, 0},
		"after the end":              {keys, c.Access, c.Token, Lifetime},
		"of a mount, after its time": {keys, other.Access, other.Token, time.Minute},
	} {
		now = time.Unix(1e9, 0).Add(test.pass)
		if g, ok := test.keys.open(test.access, test.token); ok {
			t.Errorf("%s is good for %+v", name, g)
		}
	}
	now = time.Unix(1e9, 0)
	if _, _, err := (accounts{keys: keys}).DeriveSigningKey("AKIAX", "", "20010909", Region, "s3"); !errors.Is(err, auth.ErrInvalidSessionToken) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := (accounts{}).GetUserAccount(c.Access); !errors.Is(err, auth.ErrNoSuchUser) {
		t.Errorf("without a token it is known: %v", err)
	}
}

// TestCredentialsEnd holds that credentials end with the value of the key, or with the login, that
// they were made with: also with a login that nobody knows, as after a restore. A view that may be
// behind decides neither. Those of mounts stay.
func TestCredentialsEnd(t *testing.T) {
	now := time.Unix(1e9, 0)
	keys, state := testKeys("the same on every node, of 32 bytes", &now), statetest.New(t)
	good := func(c Credentials, current bool) bool {
		g, ok := keys.open(c.Access, c.Token)
		if !ok {
			t.Fatal("credentials are not good")
		}
		_, ok = g.actor(state.Machine.View(), now, current)
		return ok
	}
	user := state.Actor
	user.Key = compute.KeyID{}
	key, _ := state.Machine.View().Key(user.Org, state.Key)
	before := keys.Mint(state.Actor, compute.UUID{}, key.Hash)
	mount, userMount := keys.MintFor(state.Actor, Lifetime), keys.MintFor(user, Lifetime)
	for name, c := range map[string]Credentials{"of a key": before, "of a mount": mount, "of a user's mount": userMount} {
		if !good(c, true) || !good(c, false) {
			t.Errorf("those %s are refused", name)
		}
	}
	if c := keys.Mint(user, compute.UUID{7}, compute.Hash{}); good(c, true) || !good(c, false) {
		t.Error("a login that nobody knows is good in a current view, or ends in one that is behind")
	}
	state.Must(command.RegenerateKey{
		Op: state.NextOp(), Actor: state.Actor, Key: state.Key, Lookup: "m", Prefix: "q", Hash: compute.Hash{3},
	})
	if good(before, true) || !good(before, false) || !good(mount, true) {
		t.Error("after the key got another value: those of before are good, or a mount ends")
	}
	if !good(keys.Mint(state.Actor, compute.UUID{}, compute.Hash{3}), true) {
		t.Error("those of the new value are refused")
	}
}

// brokenListener fails before it has a connection.
type brokenListener struct {
	net.Listener
	fails int
	conn  net.Conn
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.fails--; l.fails >= 0 {
		return nil, errors.New("too many open files")
	}
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	return l.conn, nil
}

// TestAccept waits out what passes, and ends with the listener.
func TestAccept(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	if conn, err := Accept(t.Context(), &brokenListener{fails: 2, conn: server}); err != nil || conn != server {
		t.Errorf("after two failures: %v, %v", conn, err)
	}
	if conn, err := Accept(t.Context(), &brokenListener{}); err == nil {
		t.Errorf("of a closed listener: %v", conn)
	}
}
