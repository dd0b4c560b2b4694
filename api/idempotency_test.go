package api_test

import (
	"encoding/json"
	"strings"
	"testing"
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
	// The key is the organization's own.
	w.mustDo("POST", path, w.bobKey, map[string]any{"code": "print(2)"}, nil, "Idempotency-Key", "k1")
	// Without a key, twice is two.
	w.mustDo("POST", path, w.adaKey, body, nil)
	w.mustDo("POST", path, w.adaKey, body, nil)
	if total, _, _ := w.machine.View().Totals(w.org("ada-lab")); total != 3 {
		t.Errorf("%d executions, want 3", total)
	}
	w.want(422, "", "POST", path, w.adaKey, body, "Idempotency-Key", strings.Repeat("k", 256))
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
