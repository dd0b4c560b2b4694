package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

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

// TestScopesDoNotGrow holds that a restricted key gets its holder no other key, and
// that bad scopes are refused.
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
	for _, scopes := range []any{[]string{"root"}, []string{""}, "admin", []int{1}, slices.Repeat([]string{"admin"}, 7)} {
		w.want(422, "", "POST", "/orgs/bob-lab/api-keys", w.bobKey, map[string]any{"name": "x", "scopes": scopes})
	}
}
