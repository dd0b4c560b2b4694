package fsm_test

import (
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// signUp signs a user up, with a login, a key and a variable.
func (w *world) signUp(name, subject string) (actor command.Actor, login compute.UUID, key compute.KeyID) {
	w.Helper()
	actor = command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: compute.OrgID{UUID: w.uuid()}}
	password := "hash of " + name
	if subject != "" {
		password = ""
	}
	w.must(command.SignUp{
		User: compute.User{ID: actor.User, Email: name + "@example.com", Subject: subject, PasswordHash: password},
		Org:  compute.Org{ID: actor.Org, Slug: name},
	})
	key = compute.KeyID{UUID: w.uuid()}
	w.must(command.CreateKey{Actor: actor, Key: compute.Key{ID: key, Lookup: name, Name: name}})
	return actor, w.session(actor.User, name), key
}

// TestLinkTakesAnUnprovenAccountOver checks that the first sign-in of a person with the
// identity provider ends the access of whoever signed up with the person's address, and
// that accounts which an operator made keep theirs.
func TestLinkTakesAnUnprovenAccountOver(t *testing.T) {
	w := newOldWorldAt(t, 17)
	early, earlyLogin, earlyKey := w.signUp("early", "")
	w.upgrade()
	late, lateLogin, lateKey := w.signUp("late", "")
	for name, made := range map[string]struct {
		command.Actor
		login compute.UUID
		key   compute.KeyID
	}{"early": {early, earlyLogin, earlyKey}, "late": {late, lateLogin, lateKey}} {
		w.must(command.LinkUser{User: made.User, Subject: "https://id " + name})
		u, _ := w.view().User(made.User)
		_, key := w.view().Key(made.Org, made.key)
		if u.PasswordHash != "" || u.Unproven || w.live(made.login) || key {
			t.Errorf("%s: the user is %+v, its login is live %t, its key is there %t", name, u, w.live(made.login), key)
		}
		if m, ok := w.view().Membership(made.Org, made.User); !ok || m.Role != compute.OrgOwner {
			t.Errorf("%s: the membership is %+v", name, m)
		}
	}

	made := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: compute.OrgID{UUID: w.uuid()}}
	w.must(command.CreateUser{
		Actor: w.root, User: compute.User{ID: made.User, Email: "made@example.com", PasswordHash: "hash"},
		Org: compute.Org{ID: made.Org, Slug: "made"},
	})
	login := w.session(made.User, "made")
	w.must(command.LinkUser{User: made.User, Subject: "https://id made"})
	if u, _ := w.view().User(made.User); u.PasswordHash != "hash" || !w.live(login) {
		t.Errorf("an operator's user is %+v, its login is live %t", u, w.live(login))
	}
	person, _, _ := w.signUp("person", "https://id person")
	if u, _ := w.view().User(person.User); u.Unproven {
		t.Errorf("a person of the identity provider is %+v", u)
	}
}

// TestLinkBelowItsFormat checks that an account is taken over only where every server
// does so.
func TestLinkBelowItsFormat(t *testing.T) {
	w := newOldWorldAt(t, 17)
	made, login, _ := w.signUp("early", "")
	w.must(command.LinkUser{User: made.User, Subject: "https://id early"})
	if u, _ := w.view().User(made.User); u.PasswordHash == "" || u.Unproven || !w.live(login) {
		t.Errorf("the user is %+v, its login is live %t", u, w.live(login))
	}
}

// TestRenames renames a user as the identity provider does, except to the address of another
// user.
func TestRenames(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	made, login, key := w.signUp("ann", "https://id ann")
	w.signUp("ben", "https://id ben")
	to := func(email, name string) command.LinkUser {
		return command.LinkUser{User: made.User, Subject: "https://id ann", Email: email, FullName: name}
	}
	w.must(to("lovelace@example.com", "Ada Lovelace"))
	u, ok := w.view().UserByEmail("lovelace@example.com")
	if _, old := w.view().UserByEmail("ann@example.com"); old || !ok || u.ID != made.User || u.FullName != "Ada Lovelace" {
		t.Errorf("the user is %+v, %t; the earlier address is known: %t", u, ok, old)
	}
	if _, kept := w.view().Key(made.Org, key); !kept || !w.live(login) {
		t.Error("a new address ends keys or logins")
	}
	w.refused(to("ben@example.com", ""), compute.CodeConflict, "email_taken")
	w.must(to("lovelace@example.com", ""))
	lines := 0
	for line := range w.view().Audit(made.Org, 0) {
		if line.Action == "user.rename" {
			lines++
			if !strings.Contains(line.Detail, "ann@example.com") || !strings.Contains(line.Detail, "lovelace@example.com Ada Lovelace") {
				t.Errorf("the line is %+v", line)
			}
		}
	}
	if lines != 1 {
		t.Errorf("%d lines, want 1", lines)
	}
}

// newOldWorldAt returns a world with users whose state has an earlier format.
func newOldWorldAt(t *testing.T, format uint64) *world {
	w := newEmptyWorld(t)
	w.format = format
	w.fill()
	w.must(command.SetFormat{Term: w.term, Format: format})
	return w
}
