package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// member adds a member to ada's organization and returns it as an actor.
func (w *world) member(name string, role compute.OrgRole) command.Actor {
	w.Helper()
	user := compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: name + "@example.com"}
	w.must(command.CreateUser{Actor: w.root, User: user, Org: compute.Org{Slug: "ada"}, Join: true, Role: role})
	return command.Actor{User: user.ID, Org: w.org}
}

// session stores the first refresh token of a login and returns its family.
func (w *world) session(user compute.UserID, name string) compute.UUID {
	w.Helper()
	family := w.uuid()
	w.must(command.StoreRefresh{Token: compute.RefreshToken{
		Hash: hash(name), Family: family, User: user, ExpiresAt: w.now.Add(time.Hour),
	}})
	return family
}

// live reports whether a login goes on.
func (w *world) live(family compute.UUID) bool {
	live, _ := w.view().Session(family)
	return live
}

func TestUsersJoin(t *testing.T) {
	w := newWorld(t)
	bea := w.member("bea", compute.OrgMember)
	v := w.view()
	m, ok := v.Membership(w.org, bea.User)
	if !ok || m.Role != compute.OrgMember || !m.Default || len(v.Members(w.org)) != 2 {
		t.Errorf("the member is %+v of %d", m, len(v.Members(w.org)))
	}
	w.wantMoney(100*compute.Credit, 0) // No second sign-up grant.
	join := func(email, slug string) command.CreateUser {
		return command.CreateUser{
			Actor: w.root, User: compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: email},
			Org: compute.Org{ID: compute.OrgID{UUID: w.uuid()}, Slug: slug}, Join: true,
		}
	}
	w.refused(join("bea@example.com", "ada"), compute.CodeConflict, "email_taken")
	w.refused(join("", "ada"), compute.CodeInvalid, "user")
	again := join("c@example.com", "ada")
	again.User.ID = bea.User
	w.refused(again, compute.CodeConflict, "user_exists")
	again = join("c@example.com", "ada")
	again.Role = 3
	w.refused(again, compute.CodeInvalid, "role")
	again = join("c@example.com", "ada")
	again.Actor = w.ada
	w.refused(again, compute.CodeForbidden, "not_an_operator")
	founder := join("c@example.com", "new")
	w.must(founder)
	if m, _ := w.view().Membership(founder.Org.ID, founder.User.ID); m == nil || m.Role != compute.OrgOwner {
		t.Errorf("who creates an organization is %+v in it", m)
	}
}

// TestRoles tries each act on the members of an organization with each role. An
// operator may do all of them.
func TestRoles(t *testing.T) {
	const member, admin, owner = compute.OrgMember, compute.OrgAdmin, compute.OrgOwner
	type act struct {
		name string
		do   func(by command.Actor, of compute.UserID, org compute.OrgID) command.Command
		of   compute.OrgRole // The role of the member that it is done to.
		may  map[compute.OrgRole]bool
	}
	role := func(to compute.OrgRole) func(command.Actor, compute.UserID, compute.OrgID) command.Command {
		return func(by command.Actor, of compute.UserID, org compute.OrgID) command.Command {
			return command.SetMember{Actor: by, Org: org, User: of, Role: to}
		}
	}
	remove := func(by command.Actor, of compute.UserID, org compute.OrgID) command.Command {
		return command.RemoveMember{Actor: by, Org: org, User: of}
	}
	key := func(by command.Actor, of compute.UserID, _ compute.OrgID) command.Command {
		return command.CreateKey{Actor: by, Key: compute.Key{ID: compute.KeyID(of), Lookup: of.String()}}
	}
	personal := func(by command.Actor, of compute.UserID, _ compute.OrgID) command.Command {
		return command.CreateKey{Actor: by, Key: compute.Key{
			ID: compute.KeyID(of), Lookup: of.String(), Personal: true, User: by.User,
		}}
	}
	leave := func(by command.Actor, _ compute.UserID, org compute.OrgID) command.Command {
		return command.RemoveMember{Actor: by, Org: org, User: by.User}
	}
	for _, a := range []act{
		{"make a member an admin", role(admin), member, map[compute.OrgRole]bool{owner: true}},
		{"make a member an owner", role(owner), member, map[compute.OrgRole]bool{owner: true}},
		{"make an owner a member", role(member), owner, map[compute.OrgRole]bool{owner: true}},
		{"remove a member", remove, member, map[compute.OrgRole]bool{admin: true, owner: true}},
		{"remove an admin", remove, admin, map[compute.OrgRole]bool{owner: true}},
		{"remove an owner", remove, owner, map[compute.OrgRole]bool{owner: true}},
		{"make a key of the organization", key, member, map[compute.OrgRole]bool{admin: true, owner: true}},
		{"make a key of one's own", personal, member, map[compute.OrgRole]bool{member: true, admin: true, owner: true}},
		{"leave", leave, member, map[compute.OrgRole]bool{member: true, admin: true, owner: true}},
	} {
		for by := member; by <= owner; by++ {
			w := newWorld(t)
			actor, of := w.member("by", by), w.member("of", a.of)
			cmd := a.do(actor, of.User, w.org)
			if a.may[by] {
				if r := w.do(cmd); r.Refusal != nil {
					t.Errorf("%s, as %s: %v", a.name, by, r.Refusal)
				}
				continue
			}
			w.refused(cmd, compute.CodeForbidden, "role_too_low")
		}
	}
	w := newWorld(t)
	of := w.member("of", member)
	stranger := w.other
	w.refused(command.SetMember{Actor: stranger, Org: w.org, User: of.User}, compute.CodeForbidden, "not_an_operator")
	w.refused(command.RemoveMember{Actor: stranger, Org: w.org, User: of.User}, compute.CodeForbidden, "not_an_operator")
	w.refused(command.SetMember{Actor: w.ada, Org: w.org, User: stranger.User}, compute.CodeNotFound, "member_not_found")
	w.must(command.SetMember{Actor: w.root, Org: w.org, User: stranger.User, Role: admin})
	if m, _ := w.view().Membership(w.org, stranger.User); m == nil || m.Default || m.Role != admin {
		t.Errorf("who was added is %+v", m)
	}
	w.must(command.RemoveMember{Actor: w.root, Org: w.org, User: of.User})
	w.refused(command.RemoveMember{Actor: w.root, Org: w.org, User: of.User}, compute.CodeNotFound, "member_not_found")
	w.refused(command.SetMember{Actor: w.root, Org: w.org, User: w.ada.User, Role: 3}, compute.CodeInvalid, "role")
	w.refused(command.SetMember{Actor: w.root, Org: w.org, User: compute.UserID{UUID: w.uuid()}},
		compute.CodeNotFound, "user_not_found")
}

// TestLastOwner holds that an organization keeps an owner.
func TestLastOwner(t *testing.T) {
	w := newWorld(t)
	bea := w.member("bea", compute.OrgAdmin)
	demote := command.SetMember{Actor: w.ada, Org: w.org, User: w.ada.User}
	leave := command.RemoveMember{Actor: w.ada, Org: w.org, User: w.ada.User}
	w.refused(demote, compute.CodeConflict, "last_owner")
	w.refused(leave, compute.CodeConflict, "last_owner")
	leave.Actor = w.root
	w.refused(leave, compute.CodeConflict, "last_owner")
	w.must(command.SetMember{Actor: w.ada, Org: w.org, User: bea.User, Role: compute.OrgOwner})
	w.must(leave)
	if _, known := w.view().User(w.ada.User); !known {
		t.Error("who left an organization is gone")
	}
}

// TestLeavingTakesTheKeys holds that the keys of a member end with the
// membership, and that another membership becomes the default.
func TestLeavingTakesTheKeys(t *testing.T) {
	w := newWorld(t)
	bea := w.member("bea", compute.OrgAdmin)
	w.must(command.SetMember{Actor: w.root, Org: w.other.Org, User: bea.User})
	k := compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: "bea"}
	w.must(command.CreateKey{Actor: bea, Key: k})
	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: bea.User})
	if n := len(w.view().Keys(w.org)); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	m := w.view().Memberships(bea.User)
	if len(m) != 1 || m[0].Org != w.other.Org || !m[0].Default {
		t.Errorf("memberships are %+v", m)
	}
	w.must(command.RemoveMember{Actor: w.root, Org: w.other.Org, User: bea.User})
	if n := len(w.view().Memberships(bea.User)); n != 0 {
		t.Errorf("%d memberships are left", n)
	}
	w.must(command.SetMember{Actor: w.root, Org: w.org, User: bea.User})
	if m := w.view().Memberships(bea.User); len(m) != 1 || !m[0].Default {
		t.Errorf("the only membership is %+v", m)
	}
}

// TestPasswords holds that a new password ends all logins but the one that set it,
// and that only the user and operators set it.
func TestPasswords(t *testing.T) {
	w := newWorld(t)
	here, there, other := w.session(w.ada.User, "1"), w.session(w.ada.User, "2"), w.session(w.other.User, "3")
	w.must(command.RotateRefresh{Old: hash("2"), Next: compute.RefreshToken{Hash: hash("2'")}})
	w.refused(command.SetUser{Actor: w.other, User: w.ada.User, Password: "x"}, compute.CodeForbidden, "not_an_operator")
	w.must(command.SetUser{Actor: w.ada, User: w.ada.User, Password: "new", Keep: here})
	if u, _ := w.view().User(w.ada.User); u.PasswordHash != "new" || u.Temporary {
		t.Errorf("the user is %+v", u)
	}
	if !w.live(here) || w.live(there) || !w.live(other) {
		t.Errorf("live: the login that set it %t, another %t, another user's %t", w.live(here), w.live(there), w.live(other))
	}
	w.must(command.SetUser{Actor: w.root, User: w.ada.User, Password: "made", Temporary: true})
	if u, _ := w.view().User(w.ada.User); !u.Temporary || w.live(here) {
		t.Errorf("after a reset the user is %+v, the login live %t", u, w.live(here))
	}
	w.refused(command.SetUser{Actor: w.root, User: compute.UserID{UUID: w.uuid()}, Password: "x"},
		compute.CodeNotFound, "user_not_found")
}

// TestChangesEndWithTheirPassword checks that a password confirms no change that is applied
// after it was replaced.
func TestChangesEndWithTheirPassword(t *testing.T) {
	w := newestWorld(t)
	digest := func() compute.Hash {
		u, _ := w.view().User(w.ada.User)
		return command.PasswordDigest(u)
	}
	old := digest()
	w.must(command.SetUser{Actor: w.root, User: w.ada.User, Password: "reset", Temporary: true})
	change := command.SetUser{Actor: w.ada, User: w.ada.User, Password: "of the thief", Checked: old}
	w.refused(change, compute.CodeForbidden, "wrong_password")
	w.refused(command.DeleteUser{Actor: w.ada, Checked: old}, compute.CodeForbidden, "wrong_password")
	change.Checked = digest()
	w.must(change)
	w.must(command.DeleteUser{Actor: w.ada, Checked: digest()})
	early := newOldWorldAt(t, format.Output)
	for _, cmd := range []command.Command{change, command.DeleteUser{Actor: w.ada, Checked: old}} {
		if err := early.view().Allows(cmd); err == nil {
			t.Errorf("%T with a password is proposed before every server checks it", cmd)
		}
	}
}

// TestDisabledUsers holds that a disabled user and the user's keys are refused,
// and that enabling the user does not revive earlier logins.
func TestDisabledUsers(t *testing.T) {
	w := newWorld(t)
	login := w.session(w.ada.User, "1")
	key := w.key("aaaaaaaaaa")
	submit := w.python("cpu")
	w.refused(command.SetUser{Actor: w.ada, User: w.ada.User, Disabled: new(true)}, compute.CodeForbidden, "not_an_operator")
	w.must(command.SetUser{Actor: w.root, User: w.ada.User, Disabled: new(true)})
	for _, a := range []command.Actor{w.ada, key} {
		submit.Actor = a
		w.refused(submit, compute.CodeUnauthenticated, "user_inactive")
	}
	w.refused(command.StoreRefresh{Token: compute.RefreshToken{Hash: hash("2"), User: w.ada.User, ExpiresAt: w.now.Add(1e9)}},
		compute.CodeUnauthenticated, "user_inactive")
	w.must(command.SetUser{Actor: w.root, User: w.ada.User, Disabled: new(false)})
	submit.Actor = key
	w.must(submit)
	if w.live(login) {
		t.Error("a login goes on after the user was disabled")
	}
	w.must(command.CreateUser{
		Actor: w.root, User: compute.User{ID: compute.UserID{UUID: compute.UUID{77}}, Email: "op", Operator: true},
		Org: compute.Org{Slug: "ada"}, Join: true,
	})
	op := command.Actor{User: compute.UserID{UUID: compute.UUID{77}}, Org: w.org}
	w.refused(command.SetUser{Actor: op, User: op.User, Disabled: new(true)}, compute.CodeConflict, "own_account")
	w.must(command.SetUser{Actor: op, User: w.ada.User, Disabled: new(true)})
}

// TestRegeneratedKeyIsItsMakers holds that nobody gets the rights of another member
// with a new value of that one's key.
func TestRegeneratedKeyIsItsMakers(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	admin := w.member("bea", compute.OrgAdmin)
	shared := compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: "shared"}
	personal := compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: "personal", Personal: true}
	for _, k := range []compute.Key{shared, personal} {
		w.must(command.CreateKey{Actor: w.ada, Key: k})
	}
	w.refused(command.RegenerateKey{Actor: admin, Key: personal.ID, Lookup: "a"}, compute.CodeForbidden, "not_your_key")
	w.must(command.RegenerateKey{Actor: admin, Key: shared.ID, Lookup: "b"})
	w.must(command.RegenerateKey{Actor: w.ada, Key: personal.ID, Lookup: "c"})
	for id, want := range map[compute.KeyID]compute.UserID{shared.ID: admin.User, personal.ID: w.ada.User} {
		if k, ok := w.view().Key(w.org, id); !ok || k.User != want {
			t.Errorf("the key is %+v, want one of %s", k, want)
		}
	}
	w.must(command.ToggleKey{Actor: admin, Key: personal.ID})
	w.must(command.DeleteKey{Actor: admin, Key: personal.ID})
}
