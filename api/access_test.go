package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

func TestLogin(t *testing.T) {
	w := newWorld(t)
	session := w.login("ada")
	if session.TokenType != "bearer" || session.ExpiresIn != 900 || session.Email != "ada@example.com" {
		t.Errorf("session is %+v", session)
	}
	var status wire.UserStatus
	w.mustDo("GET", "/user/status", session.AccessToken, nil, &status)
	if status.Email != "ada@example.com" || status.ActiveKeys != 1 || status.CreditBalance != 100*compute.Credit {
		t.Errorf("status is %+v", status)
	}
	w.mustDo("POST", "/auth/login", "", map[string]any{"email": " ADA@example.com ", "password": password}, nil)
	wrong := w.want(401, "bad_login", "POST", "/auth/login", "",
		map[string]any{"email": "ada@example.com", "password": "wrong"})
	unknown := w.want(401, "bad_login", "POST", "/auth/login", "",
		map[string]any{"email": "nobody@example.com", "password": "wrong"})
	if string(wrong.body) != string(unknown.body) {
		t.Errorf("a wrong password says %s, an unknown user %s", wrong.body, unknown.body)
	}
	w.pass(16 * time.Minute)
	w.want(401, "unauthenticated", "GET", "/user/status", session.AccessToken, nil)
}

func TestLoginThrottle(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.LoginRate, c.Limits.LoginBurst = 1, 2 })
	w.pass(time.Hour)
	body := map[string]any{"email": "ada@example.com", "password": "wrong"}
	w.want(401, "", "POST", "/auth/login", "", body)
	w.want(401, "", "POST", "/auth/login", "", body)
	a := w.want(429, "rate_limited", "POST", "/auth/login", "", body)
	if a.header.Get("Retry-After") != "60" {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	// The owner's password is good from another network meanwhile.
	for n, from := range []string{"n1 198.51.100.7", "n1 2001:db8::7"} {
		in := edge.Relayed{
			Method: "POST", Path: root + "/auth/login", Type: "application/json", IP: from, Op: uuid(uint64(90 + n)),
			Body: []byte(`{"email":"ada@example.com","password":"` + password + `"}`),
		}
		answer, err := (&relayTo{world: w}).Relay(t.Context(), in)
		w.ok(err)
		if answer.Status != 200 {
			t.Errorf("a sign-in from %s is answered %d", from, answer.Status)
		}
		w.ok(answer.Body.Close())
	}
	// Another account of the same address is not held up.
	w.want(401, "", "POST", "/auth/login", "", map[string]any{"email": "bob@example.com", "password": "wrong"})
}

func TestRefresh(t *testing.T) {
	w := newWorld(t)
	first := w.login("ada")
	body := map[string]any{"refresh_token": first.RefreshToken}
	var second, again wire.Session
	w.mustDo("POST", "/auth/refresh", "", body, &second)
	if second.RefreshToken == first.RefreshToken {
		t.Error("the refresh token did not change")
	}
	w.mustDo("GET", "/user/status", second.AccessToken, nil, nil)
	// The answer was lost: the same successor.
	w.pass(10 * time.Second)
	w.mustDo("POST", "/auth/refresh", "", body, &again)
	if again.RefreshToken != second.RefreshToken {
		t.Error("a repeat within the grace gave another successor")
	}
	// Reuse later revokes the family.
	w.pass(time.Minute)
	w.want(401, "token_reused", "POST", "/auth/refresh", "", body)
	w.want(401, "token_revoked", "POST", "/auth/refresh", "", map[string]any{"refresh_token": second.RefreshToken})
	w.want(401, "", "POST", "/auth/refresh", "", map[string]any{"refresh_token": "nonsense"})
}

func TestLogout(t *testing.T) {
	w := newWorld(t)
	session := w.login("ada")
	body := map[string]any{"refresh_token": session.RefreshToken}
	w.mustDo("POST", "/auth/logout", "", body, nil)
	w.mustDo("POST", "/auth/logout", "", body, nil)
	w.want(401, "token_revoked", "POST", "/auth/refresh", "", body)
}

// TestAccessTokenEndsWithItsLogin checks that a logout and the reuse of a
// refresh token end the access tokens of that login, and of no other one.
func TestAccessTokenEndsWithItsLogin(t *testing.T) {
	w := newWorld(t)
	other := w.login("ada")
	want := func(status int, what, token string) {
		t.Helper()
		for _, path := range []string{"/user/status", "/user/status?consistency=stale"} {
			if a := w.send("GET", path, token, nil); a.status != status {
				t.Errorf("%s: %s = %d %s, want %d", what, path, a.status, a.body, status)
			}
		}
	}
	out := w.login("ada")
	want(200, "a login", out.AccessToken)
	w.mustDo("POST", "/auth/logout", "", map[string]any{"refresh_token": out.RefreshToken}, nil)
	want(401, "after the logout", out.AccessToken)

	stolen := w.login("ada")
	var next wire.Session
	w.mustDo("POST", "/auth/refresh", "", map[string]any{"refresh_token": stolen.RefreshToken}, &next)
	want(200, "before a refresh", stolen.AccessToken)
	want(200, "a refresh", next.AccessToken)
	w.pass(fsm.RefreshGrace + time.Second)
	w.want(401, "token_reused", "POST", "/auth/refresh", "", map[string]any{"refresh_token": stolen.RefreshToken})
	want(401, "before a refresh, after the reuse", stolen.AccessToken)
	want(401, "a refresh, after the reuse", next.AccessToken)
	want(200, "another login", other.AccessToken)
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	const path = "/orgs/ada-lab/api-keys"
	decode := func(a answer) map[string]any { return decodeObject(t, a.body) }
	fields := decode(w.mustDo("POST", path, w.adaKey, map[string]any{"name": "ci", "expires_at": "2026-12-31T00:00:00Z"}, nil))
	key, id := fields["plaintext_key"].(string), fields["id"].(string)
	if !strings.HasPrefix(key, "lk_") || fields["prefix"] != key[:8] || fields["expires_at"] != "2026-12-31T00:00:00.000Z" ||
		fields["last_used_at"] != nil || fields["is_active"] != true || fields["name"] != "ci" {
		t.Errorf("minted key is %v", fields)
	}
	w.mustDo("GET", "/user/status", key, nil, nil)
	list := w.mustDo("GET", path, key, nil, nil)
	if strings.Contains(string(list.body), "plaintext") || strings.Contains(string(list.body), key[3:20]) {
		t.Errorf("the list shows a key: %s", list.body)
	}
	w.mustDo("PATCH", path+"/"+id+"/toggle", w.adaKey, nil, nil)
	w.want(401, "unauthenticated", "GET", "/user/status", key, nil)
	w.mustDo("PATCH", path+"/"+id+"/toggle", w.adaKey, nil, nil)
	w.mustDo("GET", "/user/status", key, nil, nil)
	fields = decode(w.mustDo("POST", path+"/"+id+"/regenerate", w.adaKey, nil, nil))
	w.want(401, "", "GET", "/user/status", key, nil)
	key = fields["plaintext_key"].(string)
	w.mustDo("GET", "/user/status", key, nil, nil)
	w.mustDo("DELETE", path+"/"+id, w.adaKey, nil, nil)
	w.want(401, "", "GET", "/user/status", key, nil)
	w.want(404, "", "DELETE", path+"/"+id, w.adaKey, nil)
	w.want(422, "", "POST", path, w.adaKey, map[string]any{"name": "old", "expires_at": "2020-01-01T00:00:00Z"})
}

func TestKeyExpires(t *testing.T) {
	w := newWorld(t)
	fields := decodeObject(t, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey,
		map[string]any{"name": "short", "expires_at": begin.Add(time.Hour).Format(time.RFC3339)}, nil).body)
	key := fields["plaintext_key"].(string)
	w.mustDo("GET", "/user/status", key, nil, nil)
	w.pass(time.Hour)
	w.want(401, "", "GET", "/user/status", key, nil)
}

func TestRevokedKeyCannotWrite(t *testing.T) {
	w := newWorld(t)
	// The node still has the old view: the state itself refuses.
	var actor command.Actor
	for _, k := range w.machine.View().Keys(w.org("ada-lab")) {
		actor = command.Actor{User: k.User, Key: k.ID, Org: k.Org}
	}
	w.must(command.DeleteKey{Actor: actor, Key: actor.Key})
	w.want(401, "", "POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "1"})
}

// org returns the identifier of an organization.
func (w *world) org(slug string) compute.OrgID {
	w.Helper()
	org, ok := w.machine.View().OrgBySlug(slug)
	if !ok {
		w.Fatalf("no organization %s", slug)
	}
	return org.ID
}

func TestOrganizationOfRequest(t *testing.T) {
	w := newWorld(t)
	token := w.login("ada").AccessToken
	for _, tc := range []struct {
		name, bearer, slug string
		status             int
	}{
		{"token, own slug", token, "ada-lab", 200},
		{"token, no slug", token, "", 200},
		{"token, foreign slug", token, "bob-lab", 403},
		{"token, unknown slug", token, "nobody", 403},
		{"key, own slug", w.adaKey, "ada-lab", 200},
		{"key, foreign slug", w.adaKey, "bob-lab", 403},
		{"key, unknown slug", w.adaKey, "nobody", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var header []string
			if tc.slug != "" {
				header = []string{"X-Org-Slug", tc.slug}
			}
			a := w.send("GET", "/user/status", tc.bearer, nil, header...)
			if a.status != tc.status {
				t.Errorf("= %d %s, want %d", a.status, a.body, tc.status)
			}
			if a.status == 403 && string(a.body) != `{"detail":"X-Org-Slug names no organization of yours.","code":"org_forbidden"}` {
				t.Errorf("the refusal tells one organization from another: %s", a.body)
			}
		})
	}
	foreign := w.want(404, "not_found", "GET", "/orgs/bob-lab/api-keys", w.adaKey, nil)
	unknown := w.want(404, "not_found", "GET", "/orgs/nobody/api-keys", w.adaKey, nil)
	if string(foreign.body) != string(unknown.body) {
		t.Errorf("foreign %s, unknown %s", foreign.body, unknown.body)
	}
}

func TestRoles(t *testing.T) {
	w := newWorld(t)
	session := w.login("bob")
	w.want(403, "not_operator", "GET", "/admin/nodes", session.AccessToken, nil)
	w.want(403, "not_operator", "GET", "/admin/nodes", w.bobKey, nil)
	w.want(401, "", "GET", "/admin/nodes", "brt_wrong", nil)
	w.want(401, "", "GET", "/admin/nodes", "", nil)
	w.mustDo("GET", "/admin/nodes", w.adaKey, nil, nil)
	w.mustDo("GET", "/admin/nodes", rootToken, nil, nil)
	// The root token is nobody's: it has no organization.
	w.want(401, "", "GET", "/user/status", rootToken, nil)
}

func TestStaleReads(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	path := "/execution/" + id.String()
	w.know(func(s *readerState) { s.noLeader, s.lastContact = true, time.Minute })
	a := w.want(503, "unavailable", "GET", path, w.adaKey, nil)
	if a.header.Get("Retry-After") == "" || a.header.Get("X-Berth-Known-Leader") != "false" ||
		a.header.Get("X-Berth-Last-Contact") != "60000" {
		t.Errorf("headers are %v", a.header)
	}
	w.mustDo("GET", path+"?consistency=stale", w.adaKey, nil, nil)
	w.want(503, "", "POST", "/execution/streaming/start?consistency=stale", w.adaKey, map[string]any{"code": "1"})
	w.know(func(s *readerState) { s.lastContact = 11 * time.Minute })
	w.want(503, "too_stale", "GET", path+"?consistency=stale", w.adaKey, nil)
	w.know(func(s *readerState) { s.noLeader, s.lastContact = false, 6*time.Second })
	w.want(503, "too_stale", "GET", path+"?consistency=stale", w.adaKey, nil)
	w.know(func(s *readerState) { s.lastContact = 4 * time.Second })
	w.mustDo("GET", path+"?consistency=stale", w.adaKey, nil, nil)
	w.want(422, "", "GET", path+"?consistency=maybe", w.adaKey, nil)
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) {
		c.Limits.Rate, c.Limits.Burst = 1, 10
		c.Limits.AnonRate, c.Limits.AnonBurst = 1, 20
	})
	w.pass(time.Minute)
	for range 10 {
		w.mustDo("GET", "/user/status", w.adaKey, nil, nil)
	}
	a := w.want(429, "rate_limited", "GET", "/user/status", w.adaKey, nil)
	if a.header.Get("Retry-After") != "1" || a.header.Get("X-RateLimit-Limit") != "10" ||
		a.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("headers are %v", a.header)
	}
	w.mustDo("GET", "/user/status", w.bobKey, nil, nil)
	w.pass(time.Second)
	w.mustDo("GET", "/user/status", w.adaKey, nil, nil)
	refused := 0
	for range 30 {
		if w.send("GET", "/user/status", "", nil).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("strangers have no rate limit")
	}
	w.want(429, "rate_limited", "GET", "/auth/oidc", "", nil)
	for range 30 {
		w.mustDo("GET", "/livez", "", nil, nil)
		w.mustDo("GET", "/health/ping", "", nil, nil)
	}
}

// TestRefusedRequestsCount has a caller send requests that are refused with 403, which read the
// state as others do.
func TestRefusedRequestsCount(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.Rate, c.Limits.Burst = 1, 5 })
	foreign := []string{"X-Org-Slug", "nowhere"}
	for range 5 {
		if a := w.fetch("GET", root+"/user/status", w.bobKey, nil, foreign); a.status != 403 {
			t.Fatalf("answered %d", a.status)
		}
	}
	if a := w.fetch("GET", root+"/user/status", w.bobKey, nil, foreign); a.status != 429 {
		t.Errorf("behind the limit: %d", a.status)
	}
	w.upgrade()
	scoped := decodeObject(w, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey,
		map[string]any{"name": "x", "scopes": []string{"storage"}}, nil).body)["plaintext_key"].(string)
	for range 5 {
		w.want(403, "scope_missing", "GET", "/billing/credits", scoped, nil)
	}
	w.want(429, "rate_limited", "GET", "/billing/credits", scoped, nil)
}

// TestStrangersMakeNoSeries sends methods that HTTP does not know to each part of the API.
func TestStrangersMakeNoSeries(t *testing.T) {
	w := newWorld(t)
	series := func() (n int) {
		families, err := w.cfg.Gatherer.Gather()
		w.ok(err)
		for _, f := range families {
			n += len(f.Metric)
		}
		return n
	}
	ask := func(method string) {
		for _, path := range []string{"/services/x/", "/openai/v1/models", "/serverless/models", "/s3/b", root + "/user/status", "/nothing"} {
			w.statusOf(method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		}
	}
	ask("BREW")
	before := series()
	for i := range 20 {
		ask(fmt.Sprint("BREW", i))
	}
	if after := series(); after != before {
		t.Errorf("%d series after %d", after, before)
	}
}

// TestClockThatIsSet sets the clock of a node while it answers: neither how long
// that took nor how soon a stranger may try again goes by it.
func TestClockThatIsSet(t *testing.T) {
	var w *world
	w = newWorld(t, func(c *handler.Config) {
		c.Limits.LoginRate, c.Limits.LoginBurst = 1, 1
		c.Ready = func() error {
			w.setClock(-time.Hour)
			w.pass(2 * time.Second)
			return nil
		}
	})
	w.mustDo("GET", "/readyz", "", nil, nil)
	if took := w.seconds("/readyz"); took != 2 {
		t.Errorf("an answer that took 2 s is said to have taken %v s", took)
	}
	body := map[string]any{"email": "ada@example.com", "password": "wrong"}
	w.want(401, "", "POST", "/auth/login", "", body)
	w.setClock(time.Hour)
	w.want(429, "rate_limited", "POST", "/auth/login", "", body)
	w.pass(time.Minute)
	w.want(401, "", "POST", "/auth/login", "", body)
}

func TestMetricsToken(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.MetricsToken = "scrape" })
	w.want(401, "", "GET", "/metrics", "", nil)
	w.want(401, "", "GET", "/metrics/targets", "wrong", nil)
	a := w.mustDo("GET", "/metrics", "scrape", nil, nil)
	if !strings.Contains(string(a.body), "berth_api_request_seconds_bucket") {
		t.Error("no metrics")
	}
	away := newWorld(t, func(c *handler.Config) { c.MetricsLocal = true }) // Its clients have the address 0.0.0.0.
	away.want(403, "metrics_local", "GET", "/metrics", "", nil)
	away.listen() // On this machine.
	if status := away.statusOf("GET /metrics HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nConnection: close\r\n\r\n"); status != http.StatusForbidden {
		t.Errorf("a client behind a proxy of this machine: %d", status)
	}
	if status := away.statusOf("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); status != http.StatusOK {
		t.Errorf("a client of this machine: %d", status)
	}
}

// TestBeforeTheFirstCommand wants nobody told that a credential is bad while
// there is none to compare it with.
func TestBeforeTheFirstCommand(t *testing.T) {
	w := newWorld(t)
	token := w.login("ada").AccessToken
	w.know(func(r *readerState) { r.notMade = true })
	w.want(503, "not_bootstrapped", "GET", "/user/status", token, nil)
}
