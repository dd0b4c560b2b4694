package api_test

import (
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
)

// TestOrgs takes an organization through its life.
func TestOrgs(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob := w.login("bob").AccessToken
	var made, seen wire.Org
	w.mustDo("POST", "/orgs", bob, map[string]any{"name": " Vision -- lab! "}, &made)
	if made.Slug != "vision-lab" || made.Name != "Vision -- lab!" || made.Role != compute.OrgOwner || made.IsDefault {
		t.Errorf("made %+v", made)
	}
	w.want(409, "slug_taken", "POST", "/orgs", bob, map[string]any{"name": "x", "slug": "vision-lab"})
	for _, body := range []map[string]any{
		{},
		{"name": ""},
		{"name": "  "},
		{"name": "实验"},
		{"name": "a\nb"},
		{"name": "x", "slug": "A"},
		{"name": "x", "slug": "a--b"},
		{"name": strings.Repeat("x", 256)},
		{"name": 5},
	} {
		w.want(422, "", "POST", "/orgs", bob, body)
	}
	w.mustDo("PATCH", "/orgs/vision-lab", bob, map[string]any{"name": "Seeing", "slug": "seeing", "billing_email": "Bills@example.com"}, &seen)
	if seen.Slug != "seeing" || seen.Name != "Seeing" || *seen.BillingEmail != "bills@example.com" || seen.ID != made.ID {
		t.Errorf("changed to %+v", seen)
	}
	w.want(404, "", "GET", "/orgs/vision-lab", bob, nil)
	w.want(409, "slug_taken", "PATCH", "/orgs/seeing", bob, map[string]any{"slug": "ada-lab"})
	w.want(422, "", "PATCH", "/orgs/seeing", bob, map[string]any{})
	w.want(422, "", "PATCH", "/orgs/seeing", bob, map[string]any{"billing_email": "nobody"})
	w.mustDo("POST", "/orgs/seeing/default", bob, nil, &seen)
	var status wire.UserStatus
	w.mustDo("GET", "/user/status", bob, nil, &status)
	if !seen.IsDefault || status.OrgID != made.ID || status.CreditBalance != 0 {
		t.Errorf("the default is %+v, the status %+v", seen, status)
	}

	// Deleted while something runs, then for good.
	w.addNode(1, "h100")
	var started wire.Started
	w.mustDo("POST", "/billing/grant", rootToken, map[string]any{"org": "seeing", "credits": 5}, nil)
	w.mustDo("POST", "/environment-variables", bob, `{"name":"A","value":"secret"}`, nil)
	w.mustDo("POST", "/execution/streaming/start", bob, `{"code":"1","execution_type":"h100"}`, &started)
	w.want(409, "org_in_use", "DELETE", "/orgs/seeing", bob, nil)
	w.complete(started.ExecutionID, 1, time.Second)
	key := decodeObject(w, w.mustDo("POST", "/orgs/seeing/api-keys", bob, map[string]any{"name": "x"}, nil).body)["plaintext_key"].(string)
	w.mustDo("GET", "/user/status", key, nil, nil)
	w.mustDo("DELETE", "/orgs/seeing", bob, nil, nil, "Idempotency-Key", "bye")
	w.mustDo("DELETE", "/orgs/seeing", bob, nil, nil, "Idempotency-Key", "bye") // The first answer was lost.
	w.want(404, "", "DELETE", "/orgs/seeing", bob, nil, "Idempotency-Key", "another")
	w.want(404, "", "DELETE", "/orgs/seeing", bob, nil)
	w.want(401, "", "GET", "/user/status", key, nil)
	w.want(404, "", "GET", "/orgs/seeing", bob, nil)
	w.mustDo("GET", "/user/status", bob, nil, &status)
	view := w.machine.View()
	if org, _ := view.Org(status.OrgID); org.Slug != "bob-lab" || view.DataKey(made.ID) != nil {
		t.Errorf("after the end bob acts in %s, the key of the secrets is %v", org.Slug, view.DataKey(made.ID))
	}
	if total, spent, _ := view.Totals(made.ID); total != 1 || spent == 0 {
		t.Errorf("the history has %d executions of %v credits", total, spent)
	}
	w.mustDo("POST", "/orgs", bob, map[string]any{"name": "x", "slug": "seeing"}, nil) // The slug is free.
	for range compute.MaxOwnedOrgs - 2 {
		w.mustDo("POST", "/orgs", bob, map[string]any{"name": "more", "slug": "more" + uuidText(w.last)[30:]}, nil)
		w.last++
	}
	w.want(409, "too_many_orgs", "POST", "/orgs", bob, map[string]any{"name": "too many"})
}

// TestInvites invites people, who accept, decline, come late or are somebody else.
func TestInvites(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.addUser("dan", false)
	bob, dan := w.login("bob").AccessToken, w.login("dan").AccessToken
	w.later(time.Second) // Members are listed by the time at which they joined.
	invite := func(email, role string) wire.MintedInvite {
		t.Helper()
		var made wire.MintedInvite
		w.mustDo("POST", "/orgs/bob-lab/invites", bob, map[string]any{"email": email, "role": role}, &made)
		return made
	}
	first := invite("Dan@example.com", "member")
	made := invite("dan@example.com", "admin")
	if made.Status != "pending" || made.OrgSlug != "bob-lab" || *made.InvitedBy != "bob@example.com" || made.Email != "dan@example.com" {
		t.Errorf("made %+v", made)
	}
	w.want(404, "", "POST", "/invites/"+first.Token+"/accept", dan, nil) // Another one took its place.
	w.want(403, "invite_for_another", "POST", "/invites/"+made.Token+"/accept", bob, nil)
	for _, token := range []string{
		"x", "inv_", made.Token + "x", made.Token[:len(made.Token)-1], strings.ToUpper(made.Token), made.Token[:len(made.Token)-4] + "AAAA",
	} {
		w.want(404, "", "POST", "/invites/"+token+"/accept", dan, nil)
	}
	var mine []wire.Invite
	w.mustDo("GET", "/invites", dan, nil, &mine)
	if len(mine) != 1 || mine[0].ID != made.ID {
		t.Errorf("dan is invited to %+v", mine)
	}
	var done wire.Invite
	for range 2 {
		w.mustDo("POST", "/invites/"+made.Token+"/accept", dan, nil, &done)
		if done.Status != "accepted" {
			t.Errorf("accepted is %+v", done)
		}
	}
	w.want(409, "invite_ended", "POST", "/invites/"+made.Token+"/decline", dan, nil)
	w.mustDo("GET", "/invites", dan, nil, &mine)
	var members []wire.Member
	w.mustDo("GET", "/orgs/bob-lab/members", dan, nil, &members)
	if len(mine) != 0 || len(members) != 2 || members[1].Role != compute.OrgAdmin {
		t.Errorf("invites %+v, members %+v", mine, members)
	}
	w.want(409, "already_member", "POST", "/orgs/bob-lab/invites", bob, map[string]any{"email": "dan@example.com"})

	// An admin invites members and admins, a member nobody.
	w.want(403, "role_too_low", "POST", "/orgs/bob-lab/invites", dan, map[string]any{"email": "c@example.com", "role": "owner"})
	w.mustDo("POST", "/orgs/bob-lab/invites", dan, map[string]any{"email": "c@example.com"}, nil)
	w.mustDo("PATCH", "/orgs/bob-lab/members/"+members[1].UserID.String(), bob, map[string]any{"role": "member"}, nil)
	w.want(403, "role_too_low", "POST", "/orgs/bob-lab/invites", dan, map[string]any{"email": "d@example.com"})
	w.want(403, "role_too_low", "GET", "/orgs/bob-lab/invites", dan, nil)
	w.mustDo("DELETE", "/orgs/bob-lab/members/"+members[1].UserID.String(), dan, nil, nil) // The invites of who leaves end.
	var all []wire.Invite
	w.mustDo("GET", "/orgs/bob-lab/invites", bob, nil, &all)
	if len(all) != 1 || all[0].Status != "accepted" {
		t.Errorf("the invites are %+v", all)
	}

	// Declined, revoked, too late.
	made = invite("dan@example.com", "member")
	w.mustDo("POST", "/invites/"+made.Token+"/decline", dan, nil, &done)
	w.want(409, "invite_ended", "POST", "/invites/"+made.Token+"/accept", dan, nil)
	made = invite("dan@example.com", "member")
	w.mustDo("DELETE", "/orgs/bob-lab/invites/"+made.ID.String(), bob, nil, nil)
	w.want(404, "", "DELETE", "/orgs/bob-lab/invites/"+made.ID.String(), bob, nil)
	w.want(404, "", "POST", "/invites/"+made.Token+"/accept", dan, nil)
	made = invite("dan@example.com", "member")
	w.later(compute.InviteTTL)
	dan = w.login("dan").AccessToken
	w.want(409, "invite_ended", "POST", "/invites/"+made.Token+"/accept", dan, nil)
	for _, body := range []map[string]any{{}, {"email": "x"}, {"email": "a@b", "role": "king"}, {"email": "A <a@b.c>"}, {"email": 1}} {
		w.want(422, "", "POST", "/orgs/bob-lab/invites", w.login("bob").AccessToken, body)
	}
}

// TestWithoutOrganization holds that who is a member of nothing can still make an
// organization or accept an invite, and nothing else.
func TestWithoutOrganization(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob := w.login("bob").AccessToken
	w.mustDo("DELETE", "/orgs/bob-lab", bob, nil, nil)
	w.want(403, "no_org", "GET", "/user/status", bob, nil)
	w.want(403, "no_org", "POST", "/execution/streaming/start", bob, `{"code":"1"}`)
	var list []wire.Org
	w.mustDo("GET", "/orgs", bob, nil, &list)
	if len(list) != 0 {
		t.Errorf("bob is in %+v", list)
	}
	var made wire.MintedInvite
	w.mustDo("POST", "/orgs/ada-lab/invites", w.adaKey, map[string]any{"email": "bob@example.com"}, &made)
	w.mustDo("POST", "/invites/"+made.Token+"/accept", bob, nil, nil)
	w.mustDo("GET", "/user/status", bob, nil, nil)
	var own wire.Org
	w.mustDo("POST", "/orgs", bob, map[string]any{"name": "Own"}, &own)
	if own.IsDefault {
		t.Error("a second organization became the default one")
	}
	if err := w.machine.View().Check(); err != nil {
		t.Error(err)
	}
}

// TestDeleteUser ends an account, which its own organization follows, but none that
// others need.
func TestDeleteUser(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob := w.login("bob").AccessToken
	var made wire.MintedInvite
	w.mustDo("POST", "/orgs/bob-lab/invites", bob, map[string]any{"email": "ada@example.com"}, &made)
	w.want(403, "key_of_org", "POST", "/invites/"+made.Token+"/accept", w.adaKey, nil)
	w.mustDo("POST", "/invites/"+made.Token+"/accept", w.login("ada").AccessToken, nil, nil)
	w.want(403, "wrong_password", "DELETE", "/user/delete", bob, map[string]any{"password": "wrong"})
	w.want(422, "", "DELETE", "/user/delete", bob, map[string]any{})
	right := map[string]any{"password": password}
	w.want(409, "last_owner", "DELETE", "/user/delete", bob, right)
	var members []wire.Member
	w.mustDo("GET", "/orgs/bob-lab/members", bob, nil, &members)
	for _, m := range members {
		if m.Email == "ada@example.com" {
			w.mustDo("PATCH", "/orgs/bob-lab/members/"+m.UserID.String(), bob, map[string]any{"role": "owner"}, nil)
		}
	}
	w.mustDo("POST", "/orgs", bob, map[string]any{"name": "alone"}, nil)
	w.addNode(1, "h100")
	w.mustDo("POST", "/billing/grant", rootToken, map[string]any{"org": "alone", "credits": 5}, nil)
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", bob, `{"code":"1","execution_type":"h100"}`, &started, "X-Org-Slug", "alone")
	w.want(409, "org_in_use", "DELETE", "/user/delete", bob, right)
	w.complete(started.ExecutionID, 1, time.Second)
	w.mustDo("DELETE", "/user/delete", bob, right, nil)
	w.want(401, "", "GET", "/user/status", bob, nil)
	w.want(401, "", "GET", "/user/status", w.bobKey, nil)
	w.want(401, "bad_login", "POST", "/auth/login", "", map[string]any{"email": "bob@example.com", "password": password})
	w.mustDo("GET", "/orgs/bob-lab", w.login("ada").AccessToken, nil, nil)
	if _, ok := w.machine.View().OrgBySlug("alone"); ok {
		t.Error("an organization without members is left")
	}
	w.addUser("bob2", false)
	w.mustDo("POST", "/admin/users", rootToken, map[string]any{"email": "bob@example.com", "org_slug": "again"}, nil) // The address is free.
}
