package api_test

import (
	"fmt"
	"strings"
	"testing"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// TestTeam takes a team through its life: members join, change their passwords, get
// roles, are disabled and leave.
func TestTeam(t *testing.T) {
	w := newWorld(t)
	var bea, same wire.User
	w.mustDo("POST", "/admin/users", rootToken, map[string]any{"email": "Bea@example.com", "org_slug": "ada-lab"}, &bea)
	if bea.Password == "" || !bea.Temporary || !bea.IsActive || len(bea.Orgs) != 1 ||
		bea.Orgs[0].Role != compute.OrgMember || *bea.OrgSlug != "ada-lab" || bea.Email != "bea@example.com" {
		t.Fatalf("the member is %+v", bea)
	}
	w.want(409, "email_taken", "POST", "/admin/users", rootToken, map[string]any{"email": "bea@example.com", "org_slug": "x1"})
	w.want(400, "org_not_found", "POST", "/admin/users", rootToken,
		map[string]any{"email": "z@example.com", "org_slug": "nowhere", "role": "member"})

	login := func(password string) wire.Session {
		t.Helper()
		var s wire.Session
		w.mustDo("POST", "/auth/login", "", map[string]any{"email": "bea@example.com", "password": password}, &s)
		return s
	}
	first, second := login(bea.Password), login(bea.Password)
	if !first.Temporary {
		t.Error("the login does not say that an operator made the password")
	}
	change := map[string]any{"old_password": "wrong", "new_password": "a new password"}
	w.want(403, "wrong_password", "POST", "/user/password", first.AccessToken, change)
	change["old_password"] = bea.Password
	w.want(422, "", "POST", "/user/password", first.AccessToken, map[string]any{"old_password": "x", "new_password": "short"})
	w.want(400, "same_password", "POST", "/user/password", first.AccessToken,
		map[string]any{"old_password": bea.Password, "new_password": bea.Password})
	w.mustDo("POST", "/user/password", first.AccessToken, change, nil)
	w.mustDo("GET", "/user/status", first.AccessToken, nil, nil)
	w.want(401, "", "GET", "/user/status", second.AccessToken, nil)
	w.want(401, "token_revoked", "POST", "/auth/refresh", "", map[string]any{"refresh_token": second.RefreshToken})
	if login("a new password").Temporary {
		t.Error("a password of the user's own is still temporary")
	}

	// Two organizations: X-Org-Slug chooses.
	w.mustDo("PATCH", "/admin/users/"+bea.UserID.String(), rootToken, map[string]any{"org_slug": "bob-lab", "role": "admin"}, &same)
	if len(same.Orgs) != 2 || *same.OrgSlug != "ada-lab" {
		t.Errorf("the user of two organizations is %+v", same)
	}
	for header, want := range map[string]string{"": "ada-lab", "bob-lab": "bob-lab"} {
		var head []string
		if header != "" {
			head = []string{"X-Org-Slug", header}
		}
		var status wire.UserStatus
		w.mustDo("GET", "/user/status", first.AccessToken, nil, &status, head...)
		if org, _ := w.machine.View().Org(status.OrgID); org.Slug != want {
			t.Errorf("with X-Org-Slug %q the organization is %s", header, org.Slug)
		}
	}
	w.want(403, "org_forbidden", "GET", "/user/status", first.AccessToken, nil, "X-Org-Slug", "nobody-lab")

	id := "/admin/users/" + bea.UserID.String()
	w.mustDo("PATCH", id, rootToken, map[string]any{"disabled": true}, &same)
	if same.IsActive {
		t.Error("a disabled user is active")
	}
	w.want(401, "", "GET", "/user/status", first.AccessToken, nil)
	w.want(401, "bad_login", "POST", "/auth/login", "", map[string]any{"email": "bea@example.com", "password": "a new password"})
	w.mustDo("PATCH", id, rootToken, map[string]any{"disabled": false}, nil)
	w.mustDo("PATCH", id, rootToken, map[string]any{"reset_password": true}, &same)
	if again := login(same.Password); !again.Temporary {
		t.Error("a reset password is not temporary")
	}
	w.want(401, "", "POST", "/auth/login", "", map[string]any{"email": "bea@example.com", "password": "a new password"})
	var ada struct {
		ID compute.UserID `json:"user_id"`
	}
	w.mustDo("GET", "/user/status", w.adaKey, nil, &ada)
	w.want(409, "own_account", "PATCH", "/admin/users/"+ada.ID.String(), w.adaKey, map[string]any{"disabled": true})
}

// TestUserChangesAreChecked sends changes that say nothing or contradict themselves.
func TestUserChangesAreChecked(t *testing.T) {
	w := newWorld(t)
	var bob wire.UserStatus
	w.mustDo("GET", "/user/status", w.bobKey, nil, &bob)
	for _, body := range []string{
		`{}`, `{"role":"admin"}`, `{"password":"short"}`, `{"password":"long enough now","reset_password":true}`,
		`{"org_slug":"nowhere"}`, `{"org_slug":"ada-lab","disabled":true}`, `{"org_slug":"ada-lab","role":"king"}`,
		`{"disabled":"maybe"}`,
	} {
		w.want(422, "", "PATCH", "/admin/users/"+bob.UserID.String(), rootToken, body)
	}
	for _, path := range []string{"/admin/users/x", "/admin/users/" + uuidText(9)} {
		w.want(404, "", "PATCH", path, rootToken, `{"disabled":true}`)
	}
}

func TestListUsers(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.mustDo("POST", "/admin/users", rootToken, map[string]any{
			"email": fmt.Sprintf("u%d@example.com", i), "password": password, "org_slug": "ada-lab",
		}, nil)
		w.pass(1e9)
	}
	list := func(query string) (emails []string, next string) {
		t.Helper()
		var page []wire.User
		a := w.mustDo("GET", "/admin/users?"+query, rootToken, nil, &page)
		for _, u := range page {
			emails = append(emails, strings.TrimSuffix(u.Email, "@example.com"))
		}
		return emails, a.header.Get("X-Next-Cursor")
	}
	var all []string
	pages := 0
	for next := ""; ; pages++ {
		var page []string
		if page, next = list("limit=3&cursor=" + next); next == "" {
			all = append(all, page...)
			break
		}
		all = append(all, page...)
	}
	if len(all) != 7 || pages != 2 {
		t.Errorf("%d pages have %q", pages+1, all)
	}
	if got, _ := list("org=bob-lab"); len(got) != 1 || got[0] != "bob" {
		t.Errorf("bob-lab has %q", got)
	}
	if got, _ := list("org=nowhere"); len(got) != 0 {
		t.Errorf("an unknown organization has %q", got)
	}
	if got, _ := list("email=U3@example.com"); len(got) != 1 || got[0] != "u3" {
		t.Errorf("by address: %q", got)
	}
	w.want(422, "", "GET", "/admin/users?cursor=x", rootToken, nil)
}

// TestMembers changes and removes members as each role may.
func TestMembers(t *testing.T) {
	w := newWorld(t)
	var bea wire.User
	w.mustDo("POST", "/admin/users", rootToken, map[string]any{
		"email": "bea@example.com", "password": password, "org_slug": "ada-lab", "full_name": "Bea",
	}, &bea)
	session := w.login("bea")
	const path = "/orgs/ada-lab/members"
	var list []wire.Member
	w.mustDo("GET", path, session.AccessToken, nil, &list)
	if len(list) != 2 || list[0].Email != "ada@example.com" || list[0].Role != compute.OrgOwner || *list[1].FullName != "Bea" {
		t.Errorf("the members are %+v", list)
	}
	own, ada := path+"/"+bea.UserID.String(), path+"/"+list[0].UserID.String()
	w.want(403, "role_too_low", "PATCH", own, session.AccessToken, `{"role":"owner"}`)
	w.want(403, "role_too_low", "DELETE", ada, session.AccessToken, nil)
	w.want(409, "last_owner", "PATCH", ada, w.adaKey, `{"role":"admin"}`)
	w.want(409, "last_owner", "DELETE", ada, w.adaKey, nil)
	w.want(422, "", "PATCH", own, w.adaKey, `{"role":"king"}`)
	w.want(404, "", "PATCH", path+"/"+uuidText(9), w.adaKey, `{"role":"admin"}`)
	var changed wire.Member
	w.mustDo("PATCH", own, w.adaKey, `{"role":"admin"}`, &changed)
	if changed.Role != compute.OrgAdmin {
		t.Errorf("the member is %+v", changed)
	}
	w.want(403, "role_too_low", "DELETE", ada, session.AccessToken, nil)
	key := decodeObject(t, w.mustDo("POST", "/orgs/ada-lab/api-keys", session.AccessToken, `{"name":"k"}`, nil).body)
	w.mustDo("GET", "/user/status", key["plaintext_key"].(string), nil, nil)
	w.mustDo("DELETE", own, session.AccessToken, nil, nil) // Everybody may leave.
	w.want(401, "", "GET", "/user/status", key["plaintext_key"].(string), nil)
	w.want(403, "no_org", "GET", "/user/status", session.AccessToken, nil)
	w.want(404, "", "GET", path, w.bobKey, nil)
}

// TestUserKeys has a user make, disable and delete keys of the user's own, which
// nobody else sees.
func TestUserKeys(t *testing.T) {
	w := newWorld(t)
	w.mustDo("POST", "/admin/users", rootToken, map[string]any{
		"email": "bea@example.com", "password": password, "org_slug": "ada-lab",
	}, nil)
	bea := w.login("bea").AccessToken
	const path = "/auth/api-keys"
	made := decodeObject(t, w.mustDo("POST", path, bea, `{"key_name":"laptop"}`, nil).body)
	text, id := made["api_key"].(string), made["id"].(string)
	if made["key_prefix"] != text[:8] || made["is_active"] != true || made["expires_at"] != nil {
		t.Errorf("the key is %v", made)
	}
	for who, want := range map[string]int{bea: 1, text: 1, w.adaKey: 0} {
		var list []wire.UserKey
		w.mustDo("GET", path, who, nil, &list)
		if len(list) != want {
			t.Errorf("%d keys are listed, want %d", len(list), want)
		}
	}
	w.want(404, "", "DELETE", path+"/"+id, w.adaKey, nil)
	w.want(404, "", "PATCH", path+"/"+w.adaKeyID+"/toggle", w.adaKey, nil) // A key of the organization.
	w.want(422, "", "POST", path, bea, `{"key_name":"x","expires_at":"2020-01-01T00:00:00Z"}`)

	valid := func(key string) wire.ValidatedKey {
		t.Helper()
		var v wire.ValidatedKey
		w.mustDo("POST", path+"/validate", "", map[string]any{"api_key": key}, &v)
		return v
	}
	if v := valid(text); !v.Valid || *v.Email != "bea@example.com" || *v.OrgSlug != "ada-lab" || *v.KeyName != "laptop" {
		t.Errorf("the key is validated as %+v", v)
	}
	w.mustDo("PATCH", path+"/"+id+"/toggle", bea, nil, nil)
	if valid(text).Valid || valid(text[:len(text)-1]+"0").Valid || valid("x").Valid {
		t.Error("a key that is not good is valid")
	}
	w.want(401, "", "GET", "/user/status", text, nil)
	w.mustDo("DELETE", path+"/"+id, bea, nil, nil)
	w.want(404, "", "DELETE", path+"/"+id, bea, nil)
}

// TestPasswordThrottle holds that guesses of the old password are slowed down as
// sign-ins are.
func TestPasswordThrottle(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.LoginRate, c.Limits.LoginBurst = 1, 2 })
	body := map[string]any{"old_password": "wrong", "new_password": "another password"}
	w.want(403, "wrong_password", "POST", "/user/password", w.bobKey, body)
	w.want(403, "wrong_password", "POST", "/user/password", w.bobKey, body)
	w.want(429, "rate_limited", "POST", "/user/password", w.bobKey, body)
}

// TestTrustOfNobody names the organization that does not exist.
func TestTrustOfNobody(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	res := w.send("PATCH", "/admin/orgs/nope", w.adaKey, `{"trusted":true}`)
	if res.status != 404 || !strings.Contains(string(res.body), `no organization \"nope\"`) {
		t.Errorf("%d %s", res.status, res.body)
	}
}
