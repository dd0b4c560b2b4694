package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// decodeObject returns the members of a JSON object.
func decodeObject(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return out
}

func TestRepeatedStart(t *testing.T) {
	w := newWorld(t)
	body := map[string]any{"code": "print(1)"}
	const path = "/execution/streaming/start"
	first := w.mustDo("POST", path, w.adaKey, body, nil, "Idempotency-Key", "k1")
	second := w.mustDo("POST", path, w.adaKey, body, nil, "Idempotency-Key", "k1")
	if string(first.body) != string(second.body) {
		t.Errorf("first answer %s, repeat %s", first.body, second.body)
	}
	if total, _, _ := w.machine.View().Totals(w.org("ada-lab")); total != 1 {
		t.Errorf("%d executions", total)
	}
	w.want(409, "idempotency_key_reused", "POST", path, w.adaKey, map[string]any{"code": "print(2)"}, "Idempotency-Key", "k1")
	w.want(409, "", "POST", "/execution/gpu_selection/start", w.adaKey, body, "Idempotency-Key", "k1")
	// The key is its sender's own.
	w.mustDo("POST", path, w.bobKey, map[string]any{"code": "print(2)"}, nil, "Idempotency-Key", "k1")
	// Without a key, twice is two.
	w.mustDo("POST", path, w.adaKey, body, nil)
	w.mustDo("POST", path, w.adaKey, body, nil)
	if total, _, _ := w.machine.View().Totals(w.org("ada-lab")); total != 3 {
		t.Errorf("%d executions, want 3", total)
	}
	w.want(422, "", "POST", path, w.adaKey, body, "Idempotency-Key", strings.Repeat("k", 256))
}

// TestCallersShareNoIdempotencyKeys checks that a member does not get the answer to the request
// of another one, nor to that of an API key that members share, and that a user is the same one with
// another credential.
func TestCallersShareNoIdempotencyKeys(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob, _ := w.machine.View().UserByEmail("bob@example.com")
	w.must(command.SetMember{
		Actor: command.Actor{Root: true}, Org: w.org("ada-lab"), User: bob.ID, Role: compute.OrgMember,
	})
	ada, here := w.login("ada"), []string{"X-Org-Slug", "ada-lab", "Idempotency-Key", "k"}
	bobs := w.login("bob").AccessToken
	var own wire.MintedUserKey
	w.mustDo("POST", "/auth/api-keys", ada.AccessToken, `{"key_name":"laptop"}`, &own)
	for _, token := range []string{ada.AccessToken, bobs} {
		w.mustDo("POST", "/environment-variables", token, `{"name":"A","value":"a"}`, nil, "X-Org-Slug", "ada-lab")
	}
	for _, token := range []string{ada.AccessToken, bobs} {
		w.mustDo("DELETE", "/environment-variables", token, nil, nil, here...)
	}
	left := w.mustDo("GET", "/environment-variables", bobs, nil, nil, here[:2]...)
	if strings.Contains(string(left.body), "value") {
		t.Errorf("bob's variables are still there: %s", left.body)
	}
	start := func(token string) (started wire.Started) {
		w.mustDo("POST", "/execution/streaming/start", token, map[string]any{"code": "print(1)"}, &started,
			"X-Org-Slug", "ada-lab", "Idempotency-Key", "s")
		e, ok := w.machine.View().AnyExecution(started.ExecutionID)
		if !ok {
			t.Fatalf("there is no execution %s", started.ExecutionID)
		}
		if (e.User == ada.UserID) == (token == bobs) {
			t.Errorf("the execution belongs to %s", e.User)
		}
		return started
	}
	first := start(ada.AccessToken)
	if again := start(own.Value); again != first {
		t.Errorf("with a key of hers ada got %v, not %v", again, first)
	}
	others, shared := start(bobs), start(w.adaKey)
	if others == first || shared == first || others == shared {
		t.Errorf("ada has %v, bob %v, the shared key %v", first, others, shared)
	}
}

// TestOpsOfCallersAwaitTheirFormat checks that ids of requests do not depend on the caller while
// older nodes make others for a repeat.
func TestOpsOfCallersAwaitTheirFormat(t *testing.T) {
	w := newWorld(t)
	for _, upgraded := range []bool{false, true} {
		if upgraded {
			w.upgrade()
		}
		w.saw = func(cmd command.Command) {
			if c, ok := cmd.(command.Submit); ok {
				sum := sha256.Sum256([]byte("op\x00" + c.Op.Org.String() + "\x00k"))
				if same := bytes.Equal(sum[:6], c.Op.ID.UUID[:6]); same == upgraded {
					t.Errorf("upgraded %t: the id is that of the organization: %t", upgraded, same)
				}
			}
		}
		w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "print(1)"}, nil, "Idempotency-Key", "k")
	}
}

func TestRepeatedStop(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu").String()
	first := w.mustDo("POST", "/workloads/abort/"+id, w.adaKey, nil, nil, "Idempotency-Key", "k")
	second := w.mustDo("POST", "/workloads/abort/"+id, w.adaKey, nil, nil, "Idempotency-Key", "k")
	if string(first.body) != string(second.body) {
		t.Errorf("first answer %s, repeat %s", first.body, second.body)
	}
}

func TestRepeatedSecrets(t *testing.T) {
	w := newWorld(t)
	const path = "/orgs/ada-lab/api-keys"
	body := map[string]any{"name": "ci"}
	created := decodeObject(t, w.mustDo("POST", path, w.adaKey, body, nil, "Idempotency-Key", "k").body)
	a := w.want(409, "secret_not_kept", "POST", path, w.adaKey, body, "Idempotency-Key", "k")
	if detail := decodeObject(t, a.body)["detail"].(string); !strings.Contains(detail, created["id"].(string)) {
		t.Errorf("the repeat does not name the key: %s", detail)
	}
	again := path + "/" + created["id"].(string) + "/regenerate"
	w.mustDo("POST", again, w.adaKey, nil, nil, "Idempotency-Key", "r")
	w.want(409, "secret_not_kept", "POST", again, w.adaKey, nil, "Idempotency-Key", "r")

	login := map[string]any{"email": "ada@example.com", "password": password}
	w.mustDo("POST", "/auth/login", "", login, nil, "Idempotency-Key", "l")
	w.want(409, "secret_not_kept", "POST", "/auth/login", "", login, "Idempotency-Key", "l")
	// Bob's login with the same key is another request.
	w.mustDo("POST", "/auth/login", "", map[string]any{"email": "bob@example.com", "password": password}, nil,
		"Idempotency-Key", "l")

	w.mustDo("POST", "/admin/join-tokens", rootToken, map[string]any{}, nil, "Idempotency-Key", "j")
	w.want(409, "secret_not_kept", "POST", "/admin/join-tokens", rootToken, map[string]any{}, "Idempotency-Key", "j")
}

func TestRepeatedGrant(t *testing.T) {
	w := newWorld(t)
	body := map[string]any{"org": "bob-lab", "credits": "2.5", "reason": "test"}
	for range 3 {
		w.mustDo("POST", "/billing/grant", rootToken, body, nil, "Idempotency-Key", "g")
	}
	if got := w.machine.View().Account(w.org("bob-lab")).Balance.String(); got != "102.5" {
		t.Errorf("balance is %s", got)
	}
}

// loginHash returns the hash of a login's body in the log, and a hash of it
// without a key.
func loginHash(t *testing.T, key string, change ...func(*handler.Config)) (kept, plain compute.Hash) {
	w := newWorld(t, change...)
	w.saw = func(cmd command.Command) {
		if c, ok := cmd.(command.StoreRefresh); ok {
			kept = c.Op.Request
		}
	}
	body := fmt.Sprintf(`{"email":"ada@example.com","password":%q}`, password)
	w.mustDo("POST", "/auth/login", "", body, nil, "Idempotency-Key", key)
	plain = sha256.Sum256(fmt.Appendf(nil, "POST %s/auth/login\x00%d\x00%s", root, len(body), body))
	return kept, plain
}

func TestPasswordsCannotBeTriedOnTheLog(t *testing.T) {
	kept, plain := loginHash(t, "k")
	if kept == plain || kept == (compute.Hash{}) {
		t.Errorf("the log holds %x of a login; without a key it is %x", kept, plain)
	}
	if again, _ := loginHash(t, "k"); again != kept {
		t.Error("another node with the same key makes another hash")
	}
	other, _ := loginHash(t, "k", func(c *handler.Config) { c.RefreshKey = []byte("another") })
	if other == kept {
		t.Error("the hash does not depend on the cluster's key")
	}
	if without, _ := loginHash(t, ""); without != (compute.Hash{}) {
		t.Errorf("without an Idempotency-Key, the log holds %x of a login", without)
	}
}

func TestRepeatedRefresh(t *testing.T) {
	w := newWorld(t)
	first := w.login("ada")
	refresh := func(token string) map[string]any { return map[string]any{"refresh_token": token} }
	var second, again, third wire.Session
	w.mustDo("POST", "/auth/refresh", "", refresh(first.RefreshToken), &second, "Idempotency-Key", "k")
	w.mustDo("POST", "/auth/refresh", "", refresh(first.RefreshToken), &again, "Idempotency-Key", "k")
	if again.RefreshToken != second.RefreshToken {
		t.Error("a repeat gave another successor")
	}
	w.want(409, "idempotency_key_reused", "POST", "/auth/refresh", "", refresh(second.RefreshToken), "Idempotency-Key", "k")
	w.want(409, "idempotency_key_reused", "POST", "/auth/logout", "", refresh(second.RefreshToken), "Idempotency-Key", "k")
	// The key is the user's own.
	w.mustDo("POST", "/auth/refresh", "", refresh(w.login("bob").RefreshToken), nil, "Idempotency-Key", "k")
	// Later the repeat is known as one: no token, but no theft, either.
	w.pass(31 * time.Second)
	w.want(409, "secret_not_kept", "POST", "/auth/refresh", "", refresh(first.RefreshToken), "Idempotency-Key", "k")
	w.mustDo("POST", "/auth/refresh", "", refresh(second.RefreshToken), &third, "Idempotency-Key", "k2")
	// With another key it is a theft, after which no repeat gets anything.
	w.want(401, "token_reused", "POST", "/auth/refresh", "", refresh(first.RefreshToken), "Idempotency-Key", "k3")
	w.want(401, "", "POST", "/auth/refresh", "", refresh(second.RefreshToken), "Idempotency-Key", "k2")
	w.want(401, "", "POST", "/auth/refresh", "", refresh(third.RefreshToken))
}

func TestRepeatedLogout(t *testing.T) {
	w := newWorld(t)
	one, other := w.login("ada"), w.login("ada")
	body := map[string]any{"refresh_token": one.RefreshToken}
	for range 2 {
		w.mustDo("POST", "/auth/logout", "", body, nil, "Idempotency-Key", "k")
	}
	w.want(409, "idempotency_key_reused", "POST", "/auth/logout", "",
		map[string]any{"refresh_token": other.RefreshToken}, "Idempotency-Key", "k")
}

// TestRepeatsOfEveryMethod holds that a repeat gets the first answer also where
// what it names has changed or is gone since, by the first request or another.
func TestRepeatsOfEveryMethod(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	node := "/admin/nodes/" + nodeID(3).String()
	key := func() string {
		made := decodeObject(t, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey, map[string]any{"name": "ci"}, nil).body)
		return "/orgs/ada-lab/api-keys/" + made["id"].(string)
	}
	gone, switched, remade := key(), key(), key()
	ended := w.start("t4")
	w.complete(ended, 3, time.Second)
	path := "/execution/" + ended.String()
	for _, test := range []struct {
		method, path, token string
		then                func() // Between the first request and its repeat.
		code                string // Code of the repeat's error; "" if it gets the first answer.
	}{
		{"PATCH", switched + "/toggle", w.adaKey, func() { w.mustDo("PATCH", switched+"/toggle", w.adaKey, nil, nil) }, ""},
		{"PATCH", gone + "/toggle", w.adaKey, func() { w.mustDo("DELETE", switched, w.adaKey, nil, nil) }, ""},
		{"POST", remade + "/regenerate", w.adaKey, func() { w.mustDo("DELETE", remade, w.adaKey, nil, nil) }, "secret_not_kept"},
		{"DELETE", gone, w.adaKey, func() {}, ""},
		{"DELETE", path, w.adaKey, func() {}, ""},
		{"POST", node + "/drain", rootToken, func() { w.mustDo("POST", node+"/undrain", rootToken, nil, nil) }, ""},
		{"POST", node + "/undrain", rootToken, func() { w.mustDo("POST", node+"/drain", rootToken, nil, nil) }, ""},
		{"POST", node + "/drain", rootToken, func() { w.mustDo("DELETE", node, rootToken, nil, nil) }, ""},
		{"DELETE", "/admin/nodes/" + nodeID(2).String(), rootToken, func() {}, ""},
	} {
		k := test.method + test.path + fmt.Sprint(w.index)
		first := w.mustDo(test.method, test.path, test.token, nil, nil, "Idempotency-Key", k)
		test.then()
		again := w.send(test.method, test.path, test.token, nil, "Idempotency-Key", k)
		switch {
		case test.code != "":
			if again.status != 409 || again.code() != test.code {
				t.Errorf("%s %s again = %d %s, want %s", test.method, test.path, again.status, again.body, test.code)
			}
		case again.status != 200 || string(again.body) != string(first.body):
			t.Errorf("%s %s = %s, again = %d %s", test.method, test.path, first.body, again.status, again.body)
		}
		// Another request with the key is another one, also where nothing is left.
		w.want(409, "idempotency_key_reused", "DELETE", "/admin/nodes/"+nodeID(1).String(), test.token, nil, "Idempotency-Key", k)
		// Without it there is nothing to repeat.
		if test.method == "DELETE" && test.token == w.adaKey {
			w.want(404, "", test.method, test.path, test.token, nil)
		}
	}
}

// TestRepeatsAfterTheRulesChanged holds that what was accepted once is not judged
// again.
func TestRepeatsAfterTheRulesChanged(t *testing.T) {
	w := newWorld(t)
	start := map[string]any{"code": "print(1)", "timeout": 500}
	selection := map[string]any{"code": "print(1)", "execution_type": "t4"}
	key := map[string]any{"name": "short", "expires_at": w.clock().Add(time.Minute).Format(time.RFC3339)}
	began := w.mustDo("POST", "/execution/streaming/start", w.adaKey, start, nil, "Idempotency-Key", "a")
	selected := w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey, selection, nil, "Idempotency-Key", "b")
	w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey, key, nil, "Idempotency-Key", "c")
	s := w.machine.View().Settings()
	s.TimeoutMax = time.Minute
	w.must(command.SetSettings{Term: 1, Settings: s})
	w.mustDo("DELETE", "/admin/nodes/"+nodeID(3).String(), rootToken, nil, nil) // The only one with that type.
	w.pass(2 * time.Minute)
	for path, test := range map[string]struct {
		key   string
		body  any
		first []byte
	}{
		"/execution/streaming/start":     {"a", start, began.body},
		"/execution/gpu_selection/start": {"b", selection, selected.body},
	} {
		again := w.mustDo("POST", path, w.adaKey, test.body, nil, "Idempotency-Key", test.key)
		if string(again.body) != string(test.first) {
			t.Errorf("%s = %s, again %s", path, test.first, again.body)
		}
	}
	w.want(409, "secret_not_kept", "POST", "/orgs/ada-lab/api-keys", w.adaKey, key, "Idempotency-Key", "c")
}
