package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

func TestBootstrapHappensOnce(t *testing.T) {
	w := newEmptyWorld(t)
	id := w.uuid()
	w.refused(command.RegisterNode{First: true}, compute.CodeUnavailable, "not_bootstrapped")
	w.refused(command.Bootstrap{}, compute.CodeInvalid, "no_cluster_id")
	w.refused(command.Bootstrap{ClusterID: id, Prices: map[string]compute.Price{"T4": 1}},
		compute.CodeInvalid, "price")
	if w.view().Bootstrapped() {
		t.Fatal("bootstrapped by refusals")
	}
	w.must(command.Bootstrap{ClusterID: id, RootToken: hash("root"), Settings: settings(), Prices: prices()})
	if r := w.must(command.Bootstrap{ClusterID: id}); !r.Repeat {
		t.Error("a repeat is not said to be one")
	}
	w.refused(command.Bootstrap{ClusterID: w.uuid()}, compute.CodeConflict, "already_bootstrapped")
	v := w.view()
	if v.ClusterID() != id || v.RootToken() != hash("root") || v.Settings() != settings() ||
		v.Prices()["h100"] != 900 || len(v.SigningKeys()) != 0 {
		t.Errorf("cluster is %s, %+v", v.ClusterID(), v.Settings())
	}
}

func TestCreateUser(t *testing.T) {
	w := newWorld(t)
	v := w.view()
	u, ok := v.UserByEmail("ada@example.com")
	if !ok || !u.Active || u.ID != w.ada.User {
		t.Fatalf("user is %+v", u)
	}
	o, ok := v.OrgBySlug("ada")
	if !ok || o.ID != w.org {
		t.Fatalf("organization is %+v", o)
	}
	m := v.Memberships(u.ID)
	if len(m) != 1 || m[0].Role != compute.OrgOwner || !m[0].Default || len(v.Members(o.ID)) != 1 {
		t.Errorf("memberships are %+v", m)
	}
	w.wantMoney(100*compute.Credit, 0)

	create := func(email, slug string) command.CreateUser {
		return command.CreateUser{
			Actor: w.root, User: compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: email},
			Org: compute.Org{ID: compute.OrgID{UUID: w.uuid()}, Slug: slug},
		}
	}
	w.refused(create("ada@example.com", "new"), compute.CodeConflict, "email_taken")
	w.refused(create("new@example.com", "ada"), compute.CodeConflict, "slug_taken")
	w.refused(create("", "new"), compute.CodeInvalid, "user")
	w.refused(create("new@example.com", ""), compute.CodeInvalid, "user")
	again := create("new@example.com", "new")
	again.Org.ID = w.org
	w.refused(again, compute.CodeConflict, "user_exists")
	again = create("new@example.com", "new")
	again.Actor = w.ada
	w.refused(again, compute.CodeForbidden, "not_an_operator")

	operator := create("op@example.com", "ops")
	operator.User.Operator = true
	w.must(operator)
	again.Actor = command.Actor{User: operator.User.ID, Org: operator.Org.ID}
	w.must(again)
}

// key creates an API key of ada's organization and returns it as an actor.
func (w *world) key(lookup string, change ...func(*compute.Key)) command.Actor {
	w.Helper()
	k := compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: lookup, Hash: hash(lookup), Name: lookup}
	for _, f := range change {
		f(&k)
	}
	w.must(command.CreateKey{Op: w.op(w.org, lookup), Actor: w.ada, Key: k})
	return command.Actor{User: w.ada.User, Org: w.org, Key: k.ID}
}

func TestKeyLifecycle(t *testing.T) {
	w := newWorld(t)
	a := w.key("aaaaaaaaaa")
	submit := func(detail string) {
		t.Helper()
		c := w.python("cpu")
		c.Actor = a
		if detail == "" {
			w.must(c)
			return
		}
		w.refused(c, compute.CodeUnauthenticated, detail)
	}
	submit("")
	w.must(command.ToggleKey{Actor: w.ada, Key: a.Key})
	submit("key_inactive")
	w.must(command.ToggleKey{Actor: w.ada, Key: a.Key})
	submit("")

	w.must(command.RegenerateKey{Actor: w.ada, Key: a.Key, Lookup: "bbbbbbbbbb", Prefix: "lk_bbbbb", Hash: hash("new")})
	if _, ok := w.view().KeyByLookup("aaaaaaaaaa"); ok {
		t.Error("the old value of the key is still known")
	}
	if k, ok := w.view().KeyByLookup("bbbbbbbbbb"); !ok || k.Hash != hash("new") || k.Prefix != "lk_bbbbb" {
		t.Errorf("key is %+v", k)
	}
	w.must(command.DeleteKey{Actor: w.ada, Key: a.Key})
	submit("key_unknown")
	if len(w.view().Keys(w.org)) != 0 {
		t.Error("the key is still listed")
	}
	w.refused(command.DeleteKey{Actor: w.ada, Key: a.Key}, compute.CodeNotFound, "key_not_found")

	a = w.key("cccccccccc", func(k *compute.Key) { k.ExpiresAt = w.now.Add(time.Minute) })
	submit("")
	w.pass(time.Minute)
	submit("key_expired")
}

func TestKeyIsRefused(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.Keys = 2
	w.bootstrap(s)
	w.ada, w.other = w.addUser("ada"), w.addUser("bob")
	w.org = w.ada.Org
	a := w.key("aaaaaaaaaa")
	create := func(lookup string, change func(*command.CreateKey)) command.CreateKey {
		c := command.CreateKey{Actor: w.ada, Key: compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: lookup}}
		change(&c)
		return c
	}
	w.refused(create("", func(*command.CreateKey) {}), compute.CodeInvalid, "key")
	w.refused(create("aaaaaaaaaa", func(*command.CreateKey) {}), compute.CodeConflict, "key_exists")
	w.refused(create("b", func(c *command.CreateKey) { c.Key.ID = a.Key }), compute.CodeConflict, "key_exists")
	w.refused(create("b", func(c *command.CreateKey) { c.Key.ExpiresAt = w.now }), compute.CodeInvalid, "key_expired")
	w.refused(create("b", func(c *command.CreateKey) { c.Actor.Org = w.other.Org }), compute.CodeForbidden, "not_a_member")
	w.refused(create("b", func(c *command.CreateKey) { c.Actor = command.Actor{Root: true, Org: w.org} }),
		compute.CodeInvalid, "not_a_member")
	w.refused(command.ToggleKey{Actor: w.other, Key: a.Key}, compute.CodeNotFound, "key_not_found")
	w.refused(command.RegenerateKey{Actor: w.ada, Key: a.Key, Lookup: "aaaaaaaaaa"}, compute.CodeConflict, "key_exists")
	w.key("b", func(k *compute.Key) { k.Personal, k.User = true, w.ada.User })
	w.refused(create("c", func(*command.CreateKey) {}), compute.CodeForbidden, "too_many_keys")
}

func TestTouchKeysKeepsTheNewestMinute(t *testing.T) {
	w := newWorld(t)
	w.now = w.now.Add(90 * time.Second)
	a := w.key("aaaaaaaaaa")
	unknown := compute.KeyID{UUID: w.uuid()}
	touch := func(at compute.Instant) command.Result {
		return w.must(command.TouchKeys{Used: map[compute.KeyID]compute.Instant{a.Key: at, unknown: at}})
	}
	if r := touch(w.now.Add(time.Hour)); r.Count != 1 { // From a node whose clock is ahead.
		t.Fatalf("touched %d keys", r.Count)
	}
	k, _ := w.view().Key(w.org, a.Key)
	if k.LastUsedAt != epoch.Add(time.Minute) {
		t.Errorf("last used %s, want %s", k.LastUsedAt, epoch.Add(time.Minute))
	}
	if r := touch(w.now.Add(-time.Minute)); r.Count != 0 {
		t.Error("an older use counts")
	}
}

func TestSigningKeysRetire(t *testing.T) {
	w := newWorld(t)
	w.now = w.now.Add(time.Second)
	w.must(command.AddSigningKey{Term: 1, Key: compute.SigningKey{ID: "second"}})
	w.refused(command.AddSigningKey{Term: 1, Key: compute.SigningKey{ID: "second"}},
		compute.CodeConflict, "signing_key_exists")
	keys := w.view().SigningKeys()
	if len(keys) != 2 || keys[0].ID != "second" || !keys[0].RetiredAt.IsZero() ||
		keys[1].ID != "first" || keys[1].RetiredAt != w.now {
		t.Fatalf("signing keys are %+v %+v", keys[0], keys[1])
	}
	w.must(command.AddSigningKey{Term: 1, Key: compute.SigningKey{ID: "a third"}}) // In the same millisecond.
	if keys := w.view().SigningKeys(); keys[0].ID != "a third" {
		t.Errorf("the newest is %s", keys[0].ID)
	}
	w.pass(25 * time.Hour)
	if keys := w.view().SigningKeys(); len(keys) != 1 {
		t.Errorf("%d signing keys are left, want the one that signs", len(keys))
	}
}

func TestRefreshTokensRotate(t *testing.T) {
	w := newWorld(t)
	login := func(name string) compute.RefreshToken {
		token := compute.RefreshToken{
			Hash: hash(name), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(24 * time.Hour),
		}
		w.must(command.StoreRefresh{Op: w.op(compute.OrgID{}, name), Token: token})
		return token
	}
	rotate := func(old, next string) command.RotateRefresh {
		return command.RotateRefresh{Old: hash(old), Next: compute.RefreshToken{Hash: hash(next)}}
	}
	first := login("1")
	w.refused(command.StoreRefresh{Token: first}, compute.CodeConflict, "token_exists")
	w.refused(rotate("unknown", "2"), compute.CodeUnauthenticated, "token_expired")
	if r := w.must(rotate("1", "2")); r.ID != w.ada.User.UUID {
		t.Errorf("the answer names %s", r.ID)
	}
	next, ok := w.view().Refresh(hash("2"))
	if !ok || next.Family != first.Family || next.ExpiresAt != first.ExpiresAt || next.User != first.User {
		t.Fatalf("the successor is %+v", next)
	}
	w.now = w.now.Add(30 * time.Second)
	if r := w.must(rotate("1", "2")); !r.Repeat { // The answer was lost.
		t.Error("a repeat is not said to be one")
	}
	other := login("other")
	w.refused(rotate("other", "2"), compute.CodeConflict, "token_exists")

	w.now = w.now.Add(time.Millisecond)
	r := w.do(rotate("1", "2")) // Too late: this is not the client.
	if r.Refusal == nil || r.Refusal.Detail != "token_reused" {
		t.Fatalf("reuse: %+v", r)
	}
	w.refused(rotate("2", "3"), compute.CodeUnauthenticated, "token_revoked")
	if live, known := w.view().Session(first.Family); live || !known {
		t.Errorf("a revoked login is live %t, known %t", live, known)
	}
	w.must(rotate("other", "other 2")) // Another login is not affected.
	if live, known := w.view().Session(other.Family); !live || !known {
		t.Errorf("another login is live %t, known %t", live, known)
	}

	w.must(command.RevokeRefresh{Token: hash("other 2")})
	w.refused(rotate("other 2", "other 3"), compute.CodeUnauthenticated, "token_revoked")
	w.must(command.RevokeRefresh{Token: hash("unknown")})
	w.pass(24 * time.Hour)
	for _, name := range []string{"1", "2", "other", "other 2"} {
		if _, ok := w.view().Refresh(hash(name)); ok {
			t.Errorf("token %s is remembered beyond its end", name)
		}
	}
	for _, family := range []compute.UUID{first.Family, other.Family, {}} {
		if live, known := w.view().Session(family); live || known {
			t.Errorf("a forgotten login is live %t, known %t", live, known)
		}
	}
	w.refused(command.StoreRefresh{Token: other}, compute.CodeInvalid, "token_expired")
	other.User.UUID = w.uuid()
	w.refused(command.StoreRefresh{Token: other}, compute.CodeUnauthenticated, "user_inactive")
}

func TestReuseWithAnotherSuccessor(t *testing.T) {
	w := newWorld(t)
	w.must(command.StoreRefresh{Token: compute.RefreshToken{
		Hash: hash("1"), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(time.Hour),
	}})
	w.must(command.RotateRefresh{Old: hash("1"), Next: compute.RefreshToken{Hash: hash("2")}})
	r := w.do(command.RotateRefresh{Old: hash("1"), Next: compute.RefreshToken{Hash: hash("3")}})
	if r.Refusal == nil || r.Refusal.Detail != "token_reused" {
		t.Fatalf("a thief got %+v", r)
	}
	if token, _ := w.view().Refresh(hash("2")); !token.Revoked {
		t.Error("the family goes on")
	}
}

// TestIdleLoginsEnd checks that a login ends when it was not refreshed for a week, and that one
// in use lasts to its own end.
func TestIdleLoginsEnd(t *testing.T) {
	w := newestWorld(t)
	const day = 24 * time.Hour
	for _, name := range []string{"idle", "used"} {
		w.must(command.StoreRefresh{Token: compute.RefreshToken{
			Hash: hash(name), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(30 * day),
		}})
	}
	next := func(old, name string) command.RotateRefresh {
		return command.RotateRefresh{Old: hash(old), Next: compute.RefreshToken{Hash: hash(name)}}
	}
	w.pass(6 * day)
	w.must(next("used", "used 2"))
	w.pass(2 * day)
	w.refused(next("idle", "idle 2"), compute.CodeUnauthenticated, "token_expired")
	w.must(next("used 2", "used 3"))
}

// TestLoginEndsWithItsPassword checks that a login whose password was changed after it was
// checked is refused, and that one without a checked password is not.
func TestLoginEndsWithItsPassword(t *testing.T) {
	w := newestWorld(t)
	set := func(hash string) compute.Hash {
		w.must(command.SetUser{Actor: w.root, User: w.ada.User, Password: hash})
		u, _ := w.view().User(w.ada.User)
		return command.PasswordDigest(u)
	}
	login := func(name string, checked compute.Hash) command.StoreRefresh {
		return command.StoreRefresh{Password: checked, Token: compute.RefreshToken{
			Hash: hash(name), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(time.Hour),
		}}
	}
	old := set("old")
	w.must(login("1", old))
	fresh := set("new")
	w.refused(login("2", old), compute.CodeUnauthenticated, "bad_login")
	w.must(login("2", fresh))
	w.must(login("3", compute.Hash{})) // With an identity provider.
	early, _ := newOldWorld(t, 17)
	early.must(command.SetFormat{Term: early.term, Format: 17})
	if err := early.view().Allows(login("4", fresh)); err == nil {
		t.Error("a login with a password is proposed before every server checks it")
	}
	if err := early.view().Allows(login("4", compute.Hash{})); err != nil {
		t.Error(err)
	}
}
