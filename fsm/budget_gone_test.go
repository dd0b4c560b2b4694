package fsm_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

// TestCeilingsOutliveTheirSpenders checks that work keeps its ceiling while it runs,
// however its key or its member goes, and that the budget goes with the last of it.
func TestCeilingsOutliveTheirSpenders(t *testing.T) {
	const ceiling = 400_000 // An hour is 360,000.
	byKey := func(w *world, by command.Actor) command.Actor {
		by.Org, by.Key = w.org, compute.KeyID{UUID: w.uuid()}
		w.must(command.CreateKey{Actor: command.Actor{User: by.User, Org: w.org}, Key: compute.Key{
			ID: by.Key, User: by.User, Lookup: "k", Personal: true, ExpiresAt: w.now.Add(2 * time.Hour),
		}, MaxCredits: ceiling})
		return by
	}
	byMember := func(w *world, by command.Actor) command.Actor {
		w.limit(compute.Budget{User: by.User, MaxCredits: ceiling})
		return command.Actor{User: by.User, Org: w.org}
	}
	remove := func(w *world, by command.Actor) command.Command {
		return command.RemoveMember{Actor: w.ada, Org: w.org, User: by.User}
	}
	leave := func(_ *world, by command.Actor) command.Command {
		return command.DeleteUser{Actor: command.Actor{User: by.User}}
	}
	for name, way := range map[string]struct {
		limit func(*world, command.Actor) command.Actor
		end   func(*world, command.Actor) command.Command
		stays bool // The budget stays when the work has ended.
	}{
		"key deleted": {byKey, func(_ *world, by command.Actor) command.Command {
			return command.DeleteKey{Actor: command.Actor{User: by.User, Org: by.Org}, Key: by.Key}
		}, false},
		"key expired":                {byKey, func(*world, command.Actor) command.Command { return nil }, true},
		"member of the key removed":  {byKey, remove, false},
		"account of the key deleted": {byKey, leave, false},
		"account of the key linked": {byKey, func(_ *world, by command.Actor) command.Command {
			return command.LinkUser{User: by.User, Subject: "dan at the provider"}
		}, false},
		"member removed":  {byMember, remove, true},
		"account deleted": {byMember, leave, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newestWorld(t)
			dan := command.Actor{User: compute.UserID{UUID: w.uuid()}}
			w.must(command.SignUp{
				User: compute.User{ID: dan.User, Email: "dan@example.com", PasswordHash: "$argon2id$"},
				Org:  compute.Org{Slug: "ada"}, Join: true,
			})
			by := way.limit(w, dan)
			c := w.python("t4")
			c.Execution.Timeout = 9 * time.Hour
			c.Actor, c.Op = by, command.Op{}
			id := w.must(c).Execution
			w.place("n3", id)
			w.must(w.started(id))
			if end := way.end(w, by); end != nil {
				w.must(end)
			}
			w.pass(30 * time.Minute)
			var err error
			if w.fsm, err = restore(w.snapshot()); err != nil {
				t.Fatal(err)
			}
			w.pass(8 * time.Hour)
			if e := w.get(id); e.Held > ceiling || e.Stop != compute.StopGraceful || !strings.Contains(e.Detail, "ceiling") {
				t.Errorf("%s are held of %s, stop %d, %q", e.Held, compute.Credits(ceiling), e.Stop, e.Detail)
			}
			w.must(w.ended(id, compute.StatusCancelled, 8*time.Hour))
			if got := w.get(id).Billed; got > ceiling {
				t.Errorf("%s are billed", got)
			}
			w.pass(5 * time.Minute)
			if left := w.view().Budgets(w.org); (len(left) > 0) != way.stays {
				t.Errorf("%d budgets are left", len(left))
			}
			if err := w.view().Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoneBudgets checks which work keeps the budget of a key that is deleted, and that
// owners can still change it.
func TestGoneBudgets(t *testing.T) {
	w, _ := published(t)
	key := compute.KeyID{UUID: w.uuid()}
	limited := command.Actor{User: w.ada.User, Org: w.org, Key: key}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "k"}, MaxCredits: compute.Credit})
	c := w.deploymentCommand()
	c.Actor, c.Op = limited, command.Op{}
	parent := w.must(c).Execution // It has no replica, which would hold credits.
	hold := command.SettleTokens{Node: w.node("n1").ID, Session: 1, Number: 1, Holds: []command.WantedHold{
		{Payer: compute.Payer{Org: w.org, User: w.ada.User, Key: key}, Least: 1, Most: 1},
	}}
	w.must(hold)
	w.must(command.DeleteKey{Actor: w.ada, Key: key})
	w.refused(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "k"}}, compute.CodeConflict, "key_exists")
	left := func(is bool) {
		t.Helper()
		if _, ok := w.view().Budget(w.org, key, compute.UserID{}); ok != is {
			t.Errorf("there is a budget: %t", ok)
		}
		if err := w.view().Check(); err != nil {
			t.Error(err)
		}
	}
	w.pass(10 * time.Minute) // The hold for tokens ends.
	left(true)
	w.must(command.SetBudget{Actor: w.ada, Budget: compute.Budget{Org: w.org, Key: key, MaxCredits: 7, Enforce: true}})
	left(true)
	w.must(command.StopExecution{Actor: w.ada, Execution: parent, Stop: compute.StopHard})
	w.pass(time.Minute)
	left(false)

	next := compute.KeyID{UUID: w.uuid()}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: next, Lookup: "n"}, MaxCredits: compute.Credit})
	hold.Number, hold.Holds[0].Payer.Key = 2, next
	w.must(hold)
	w.must(command.DeleteKey{Actor: w.ada, Key: next})
	key = next
	w.pass(time.Minute)
	left(true)
	w.must(command.RemoveBudget{Actor: w.ada, Org: w.org, Key: next})
	left(false)
}

// TestMembersThatReturnHaveOneCeiling checks that a member who is removed while work runs
// and joins again has the ceiling that is set then, and that earlier charges still count.
func TestMembersThatReturnHaveOneCeiling(t *testing.T) {
	w := newestWorld(t)
	member := w.addUser("dan")
	join := command.SetMember{Actor: w.root, Org: w.org, User: member.User, Role: compute.OrgMember}
	member.Org = w.org
	w.must(join)
	w.limit(compute.Budget{User: member.User, MaxCredits: 6000})
	minute := func() command.Submit { // 6,000 micro-credits.
		c := w.python("t4")
		c.Actor, c.Op = member, command.Op{}
		return c
	}
	id := w.must(minute()).Execution
	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: member.User})
	w.must(join)
	w.refused(minute(), compute.CodeForbidden, "ceiling_reached")
	w.limit(compute.Budget{User: member.User, MaxCredits: 12_000})
	if all := w.view().Budgets(w.org); len(all) != 1 || all[0].MaxCredits != 12_000 {
		t.Errorf("%d budgets, want the new one", len(all))
	}
	w.must(minute())
	w.refused(minute(), compute.CodeForbidden, "ceiling_reached")
	w.complete(id, "n3", time.Minute)
	w.refused(minute(), compute.CodeForbidden, "ceiling_reached")
}

// TestHistoriesWithGoneBudgets applies random histories in which keys with a ceiling come
// and go while they have work. Invariants hold, and a replica that restarts agrees.
func TestHistoriesWithGoneBudgets(t *testing.T) {
	const seeds, rounds, steps = 6, 3, 80
	gone, ended := 0, 0
	for seed := range uint64(seeds) {
		h := newHistorian(t, seed)
		h.format = format.Newest
		for n := range h.view().Nodes() {
			renewed := *n
			renewed.Format = format.Newest
			h.do(command.RegisterNode{Node: renewed})
		}
		h.do(command.SetFormat{Term: h.term, Format: format.Newest})
		f := &follower{t: t, fsm: fsm.New(), rng: rand.New(rand.NewPCG(seed, 2))}
		before := 0
		for range rounds {
			for range steps {
				h.step()
				h.keyThing()
				now := h.goneBudgets()
				gone, ended, before = gone+max(now-before, 0), ended+max(before-now, 0), now
			}
			if err := h.view().Check(); err != nil {
				t.Fatal(err)
			}
			f.catchUp(h.entries)
			f.restart()
		}
		agree(t, h.fsm, f.fsm)
	}
	t.Log(gone, ended)
	if gone < seeds || ended < seeds {
		t.Errorf("work kept %d budgets of deleted keys, and %d of them ended", gone, ended)
	}
}

// keyThing makes or deletes a key with a ceiling, and submits work with one.
func (h *historian) keyThing() {
	owner := pick(h, h.ada, h.other)
	keys := h.view().Keys(owner.Org)
	if len(keys) == 0 || h.chance(3) {
		h.send(command.CreateKey{Actor: owner, Key: compute.Key{
			ID: compute.KeyID{UUID: h.uuid()}, Lookup: fmt.Sprint("limited ", h.rng.IntN(1000)),
		}, MaxCredits: compute.Credits(1 + h.rng.IntN(900_000))})
		return
	}
	by := owner
	by.Key = keys[h.rng.IntN(len(keys))].ID
	h.send(command.Submit{Actor: by, Execution: compute.Execution{
		ID: h.executionID(), Profile: pick(h, "cpu", "t4", "h100"), Timeout: pick(h, time.Minute, 9*time.Hour),
	}})
	if h.chance(3) {
		h.send(command.DeleteKey{Actor: owner, Key: by.Key})
	}
}

// goneBudgets counts the budgets of keys that are deleted.
func (h *historian) goneBudgets() (n int) {
	for o := range h.view().Orgs() {
		for _, b := range h.view().Budgets(o.ID) {
			if _, ok := h.view().Key(b.Org, b.Key); !ok && !b.Key.IsZero() {
				n++
			}
		}
	}
	return n
}

// TestDeletedKeysGetNoHolds has a node ask for credits for a request of a key that is deleted: its
// budget, which would bound them, may be gone too.
func TestDeletedKeysGetNoHolds(t *testing.T) {
	w, _ := published(t)
	by := w.key("late")
	payer := compute.Payer{Org: by.Org, User: by.User, Key: by.Key}
	batch := command.SettleTokens{Node: w.node("n1").ID, Session: 5}
	hold := func(most compute.Credits) compute.Credits {
		batch.Number++
		batch.Holds = []command.WantedHold{{Payer: payer, Least: 1, Most: most}}
		w.must(batch)
		return w.view().TokenHold(batch.Node, payer)
	}
	if got := hold(8); got != 8 {
		t.Fatalf("%s are held", got)
	}
	if got := hold(1); got != 1 {
		t.Fatalf("%s stay held", got)
	}
	w.must(command.DeleteKey{Actor: w.ada, Key: by.Key})
	batch.Session, batch.Number = 6, 0 // A new session begins without holds.
	if got := hold(8); got != 0 {
		t.Errorf("%s are held for a deleted key", got)
	}
}
