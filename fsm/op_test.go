package fsm_test

import (
	"reflect"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

func TestRepeatGetsTheFirstAnswer(t *testing.T) {
	w := newWorld(t)
	c := w.python("t4")
	first := w.must(c)
	before := w.account().Held
	c.Execution.ID = w.executionID() // Another node would choose another one.
	again := w.must(c)
	if !again.Repeat || again.Execution != first.Execution {
		t.Fatalf("the repeat is answered with %+v, the first was %+v", again, first)
	}
	if w.account().Held != before || w.view().QueueLen() != 1 {
		t.Error("the repeat did something")
	}

	c.Op.Request = hash("another")
	w.refused(c, compute.CodeConflict, "idempotency_key_reused")

	other := c
	other.Actor, other.Op.Org = w.other, w.other.Org
	if r := w.must(other); r.Repeat {
		t.Error("an organization got the answer of another one")
	}
}

// TestRefusalsAreRememberedForAMinute checks that a copy of a refused request
// that arrives later is refused as well, whatever has changed, for as long as a
// copy can be in flight. After that the same request is decided again.
func TestRefusalsAreRememberedForAMinute(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	c := w.python("a100.4x")
	c.Execution.Timeout = 24 * time.Hour // The first request holds four hours' worth.
	for range 12 {
		w.submit("a100.4x", func(e *compute.Execution) { e.Timeout = time.Hour })
	}
	exhausted := func() {
		t.Helper()
		if r := w.do(c); r.Refusal == nil || r.Refusal.Detail != "credits_exhausted" {
			t.Fatalf("got %+v", r)
		}
	}
	exhausted()
	w.must(command.Grant{Actor: w.root, Org: w.org, Amount: 1000 * compute.Credit})
	w.pass(59 * time.Second)
	exhausted()
	other := c
	other.Op.Request = hash("another")
	w.refused(other, compute.CodeConflict, "idempotency_key_reused")
	w.pass(time.Second)
	if r := w.must(c); r.Repeat {
		t.Error("the refusal was remembered for too long")
	}
	if r := w.must(c); !r.Repeat {
		t.Error("the answer was not remembered after a refusal")
	}
}

// TestOldFormatForgetsRefusals checks that no server remembers
// refusals while an older server, which does not, may exist.
func TestOldFormatForgetsRefusals(t *testing.T) {
	w := newWorld(t)
	c := w.python("a100.4x")
	c.Execution.Timeout = 24 * time.Hour // The first request holds four hours' worth.
	for range 12 {
		w.submit("a100.4x", func(e *compute.Execution) { e.Timeout = time.Hour })
	}
	w.refused(c, compute.CodeForbidden, "credits_exhausted")
	w.must(command.Grant{Actor: w.root, Org: w.org, Amount: 1000 * compute.Credit})
	if r := w.must(c); r.Repeat {
		t.Error("the refusal was remembered")
	}
}

func TestOpsAreForgottenAfterADay(t *testing.T) {
	w := newWorld(t)
	c := w.python("t4")
	w.must(c)
	w.pass(24*time.Hour - time.Minute)
	if r := w.must(c); !r.Repeat {
		t.Fatal("forgotten before a day")
	}
	w.pass(2 * time.Minute)
	w.refused(c, compute.CodeConflict, "execution_exists")
}

func TestZeroOpIsNeverRemembered(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.must(command.Grant{Actor: w.root, Org: w.org, Amount: 1})
	}
	w.wantMoney(100*compute.Credit+2, 0)
}

func TestEachRequestIsRepeatable(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	id := w.submit("t4")
	done := w.submit("t4")
	w.complete(done, "n3", time.Second)
	key := w.key("aaaaaaaaaa").Key
	node := w.node("n3").ID
	op := func() command.Op { return w.op(w.org, "request") }
	for _, cmd := range []command.Command{
		command.DrainNode{Op: op(), Actor: w.root, Node: node, Drained: true},
		command.RemoveNode{Op: op(), Actor: w.root, Node: node},
		command.CreateJoinToken{Op: op(), Actor: w.root, Token: compute.JoinToken{
			ID: "t", Uses: 1, ExpiresAt: w.now.Add(time.Hour),
		}},
		command.CreateUser{
			Op: op(), Actor: w.root,
			User: compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: "e"},
			Org:  compute.Org{ID: compute.OrgID{UUID: w.uuid()}, Slug: "s"},
		},
		command.CreateKey{Op: op(), Actor: w.ada, Key: compute.Key{
			ID: compute.KeyID{UUID: w.uuid()}, Lookup: "l",
		}},
		command.ToggleKey{Op: op(), Actor: w.ada, Key: key},
		command.RegenerateKey{Op: op(), Actor: w.ada, Key: key, Lookup: "m"},
		command.DeleteKey{Op: op(), Actor: w.ada, Key: key},
		command.StoreRefresh{Op: op(), Token: compute.RefreshToken{
			Hash: hash("r"), User: w.ada.User, ExpiresAt: w.now.Add(time.Hour),
		}},
		command.RotateRefresh{Op: op(), Old: hash("r"), Next: compute.RefreshToken{Hash: hash("r2")}},
		command.RevokeRefresh{Op: op(), Token: hash("r2")},
		command.StopExecution{Op: op(), Actor: w.ada, Execution: id, Stop: compute.StopHard},
		command.DeleteExecution{Op: op(), Actor: w.ada, Execution: done},
		command.Grant{Op: op(), Actor: w.root, Org: w.org, Amount: 1},
		command.SetPrices{Op: op(), Actor: w.root, Prices: map[string]compute.Price{"t4": 1}},
	} {
		first := w.must(cmd)
		before := w.account().Seq
		again := w.must(cmd)
		again.Repeat = !again.Repeat
		if !reflect.DeepEqual(first, again) || w.account().Seq != before { //nolint:govet // Neither has an error.
			t.Errorf("%T: first %+v, again %+v", cmd, first, again)
		}
	}
}
