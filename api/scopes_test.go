package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
)

// TestScopes calls every route with a key of each scope. Routes outside the key's scope
// are refused, naming the scope, before anything else is checked.
func TestScopes(t *testing.T) {
	m := newMatrix(t)
	keys := make(map[compute.Scope]string)
	for _, scope := range compute.Scopes() {
		var made wire.MintedKey
		m.mustDo("POST", "/orgs/cyd-lab/api-keys", m.cydKey, map[string]any{"name": "x", "scopes": []compute.Scope{scope}}, &made)
		if !slices.Equal(made.Scopes, []string{string(scope)}) {
			t.Fatalf("made %+v", made)
		}
		keys[scope] = made.PlaintextKey
	}
	refused := 0
	for _, rt := range api.Routes() {
		needed := rt.Scope
		path := strings.NewReplacer("{slug}", "cyd-lab", "{id}", uuidText(9), "{user_id}", uuidText(9)).Replace(rt.Path)
		for scope, key := range keys {
			if compute.Allows([]compute.Scope{scope}, needed) && rt.Method != http.MethodGet {
				continue // It may be done, and would change what the others ask for.
			}
			got := m.fetch(rt.Method, path, key, []byte("{}"), nil)
			says := strings.Contains(string(got.body), `"scope_missing"`)
			if want := !compute.Allows([]compute.Scope{scope}, needed); says != want || says && got.status != http.StatusForbidden {
				t.Errorf("%s %s with the scope %s: %d %s", rt.Method, rt.Path, scope, got.status, got.body)
			}
			if says {
				refused++
			}
		}
		reads := rt.Method == http.MethodGet
		switch public := rt.Need == edge.NeedNothing || rt.Need == edge.NeedScraper; {
		case public != (needed == compute.ScopeNone) && !reads,
			rt.Need == edge.NeedOperator && needed != compute.ScopeAdmin && rt.Tag != "Billing",
			!reads && needed == compute.ScopeBillingRead:
			t.Errorf("%s %s needs the scope %q", rt.Method, rt.Path, needed)
		}
	}
	if refused < 300 {
		t.Errorf("only %d requests were refused", refused)
	}
}

// TestScopesDoNotGrow holds that a restricted key gets its holder no key that may do more
// or lives longer, and that bad scopes are refused.
func TestScopesDoNotGrow(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	mint := func(bearer string, scopes ...string) answer {
		t.Helper()
		return w.send("POST", "/orgs/bob-lab/api-keys", bearer, map[string]any{"name": "x", "scopes": scopes})
	}
	admin := decodeObject(w, mint(w.bobKey, "executions:read", "admin").body)["plaintext_key"].(string)
	for _, scopes := range [][]string{{}, {"executions:write"}, {"admin", "billing:read"}} {
		if a := mint(admin, scopes...); a.status != http.StatusForbidden || !strings.Contains(string(a.body), "scope_missing") {
			t.Errorf("a key with %v: %d %s", scopes, a.status, a.body)
		}
	}
	if a := mint(admin, "executions:read"); a.status != http.StatusOK {
		t.Errorf("a smaller key: %d %s", a.status, a.body)
	}
	var list []wire.Key
	w.mustDo("GET", "/orgs/bob-lab/api-keys", w.bobKey, nil, &list)
	for _, k := range list {
		if len(k.Scopes) == 0 { // bob's own, which may do everything.
			w.want(403, "scope_missing", "POST", "/orgs/bob-lab/api-keys/"+k.ID.String()+"/regenerate", admin, nil)
		}
	}
	w.want(403, "scope_missing", "POST", "/auth/api-keys", admin, map[string]any{"key_name": "x"})
	day := func(n int) string { return w.clock().AddDate(0, 0, n).UTC().Format(time.RFC3339) }
	var brief wire.MintedUserKey
	w.mustDo("POST", "/auth/api-keys", w.bobKey, map[string]any{"key_name": "x", "expires_at": day(2)}, &brief)
	for _, until := range []any{nil, day(3)} {
		w.want(403, "key_outlives", "POST", "/auth/api-keys", brief.Value, map[string]any{"key_name": "y", "expires_at": until})
		w.want(403, "key_outlives", "POST", "/orgs/bob-lab/api-keys", brief.Value, map[string]any{"name": "y", "expires_at": until})
	}
	for _, k := range list {
		if len(k.Scopes) == 0 {
			w.want(403, "key_outlives", "POST", "/orgs/bob-lab/api-keys/"+k.ID.String()+"/regenerate", brief.Value, nil)
		}
	}
	w.want(200, "", "POST", "/auth/api-keys", brief.Value, map[string]any{"key_name": "y", "expires_at": day(2)})
	w.want(200, "", "POST", "/orgs/bob-lab/api-keys/"+brief.ID.String()+"/regenerate", brief.Value, nil) // It expires then too.
	for _, scopes := range []any{[]string{"root"}, []string{""}, "admin", []int{1}, slices.Repeat([]string{"admin"}, 7)} {
		w.want(422, "", "POST", "/orgs/bob-lab/api-keys", w.bobKey, map[string]any{"name": "x", "scopes": scopes})
	}
}
