package check_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"berth/bench/faults/check"
	"berth/compute"
)

// step is one event of a history: the call or the return of try n.
type step struct {
	try int
	in  any // For a call.
	out any // For a return; nil with in nil drops the try.
}

// limit is far longer than any check here takes.
const limit = time.Minute

// violationsIn returns the violations in the steps. Each step has its own
// instant.
func violationsIn(o check.Object, steps []step) []check.Violation {
	at := int64(0)
	h := check.NewHistory(func() int64 { at++; return at })
	tries := map[int]*check.Try{}
	for _, s := range steps {
		switch {
		case s.in != nil:
			tries[s.try] = h.Call(o, s.try, s.in)
		case s.out == nil:
			tries[s.try].Drop()
		default:
			tries[s.try].Return(s.out)
		}
	}
	_, wrong := h.Check(limit)
	return wrong
}

func call(try int, in any) step     { return step{try: try, in: in} }
func returned(try int, o any) step  { return step{try: try, out: o} }
func dropped(try int) step          { return step{try: try} }
func whole(try int, in, o any) step { return step{try: try, in: in, out: o} }

// spread turns each whole step into a call and a return.
func spread(steps ...step) []step {
	var out []step
	for _, s := range steps {
		if s.in != nil && s.out != nil {
			out = append(out, call(s.try, s.in), returned(s.try, s.out))
			continue
		}
		out = append(out, s)
	}
	return out
}

func TestHistories(t *testing.T) {
	a, b := compute.ExecutionID{UUID: compute.UUID{1}}, compute.ExecutionID{UUID: compute.UUID{2}}
	tests := []struct {
		name  string
		kind  check.Kind
		steps []step
		ok    bool
	}{
		{"a read after a write", check.KindRegister, spread(whole(1, check.Write{Value: 1}, true), whole(2, check.Read{}, 1)), true},
		{"an old value", check.KindRegister, spread(
			whole(1, check.Write{Value: 1}, true), whole(2, check.Write{Value: 2}, true), whole(3, check.Read{}, 1)), false},
		{"an acknowledged write is lost", check.KindRegister, spread(
			whole(1, check.Write{Value: 1}, true), whole(2, check.Read{}, 0)), false},
		{"a write without an answer is seen", check.KindRegister, spread(call(1, check.Write{Value: 1}), whole(2, check.Read{}, 1)), true},
		{"and not seen", check.KindRegister, spread(call(1, check.Write{Value: 1}), whole(2, check.Read{}, 0)), true},
		{"and seen no more", check.KindRegister, spread(
			call(1, check.Write{Value: 1}), whole(2, check.Read{}, 1), whole(3, check.Read{}, 0)), false},
		{"a refused write is seen", check.KindRegister, spread(
			call(1, check.Write{Value: 1}), dropped(1), whole(2, check.Read{}, 1)), false},
		{"during a write both are right, forward only", check.KindRegister, append(spread(call(1, check.Write{Value: 1}),
			whole(2, check.Read{}, 0), whole(3, check.Read{}, 1)), returned(1, true)), true},
		{"during a write both are right, not backward", check.KindRegister, append(spread(call(1, check.Write{Value: 1}),
			whole(2, check.Read{}, 1), whole(3, check.Read{}, 0)), returned(1, true)), false},

		{"credits add up", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 7}, check.Held),
			whole(2, check.Balance{}, check.Money{Balance: 10, Held: 7}), whole(1, check.Hold{Op: "i", Amount: 4}, check.Refused),
			whole(1, check.Settle{Op: "h", Charge: 5}, compute.Credits(5)), whole(2, check.Balance{}, check.Money{Balance: 5})), true},
		{"more is held than there is", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 11}, check.Held)), false},
		{"refused though there was enough", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 10}, check.Refused)), false},
		{"a repeated hold holds once", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), call(1, check.Hold{Op: "h", Amount: 5}),
			whole(1, check.Hold{Op: "h", Amount: 5}, check.Held), whole(2, check.Balance{}, check.Money{Balance: 10, Held: 5})), true},
		{"a repeated hold held twice", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), call(1, check.Hold{Op: "h", Amount: 5}),
			whole(1, check.Hold{Op: "h", Amount: 5}, check.Held), whole(2, check.Balance{}, check.Money{Balance: 10, Held: 10})), false},
		{"a refused hold held after all", check.KindAccount, spread(
			call(1, check.Hold{Op: "h", Amount: 5}), whole(1, check.Hold{Op: "h", Amount: 5}, check.Refused),
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(2, check.Balance{}, check.Money{Balance: 10, Held: 5})), true},
		{"charged twice", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 5}, check.Held),
			whole(1, check.Settle{Op: "h", Charge: 3}, compute.Credits(3)), whole(2, check.Balance{}, check.Money{Balance: 4})), false},
		{"charged more than was held", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 5}, check.Held),
			whole(1, check.Settle{Op: "h", Charge: 6}, compute.Credits(6))), false},
		{"charged other than was reported", check.KindAccount, spread(
			whole(1, check.Grant{Op: "g", Amount: 10}, true), whole(1, check.Hold{Op: "h", Amount: 5}, check.Held),
			whole(1, check.Settle{Op: "h", Charge: 3}, compute.Credits(2))), false},

		{"a deleted key is dead", check.KindKey, spread(
			whole(1, check.Use{}, true), whole(1, check.Delete{}, true), whole(2, check.Use{}, false)), true},
		{"a deleted key lives", check.KindKey, spread(whole(1, check.Delete{}, true), whole(2, check.Use{}, true)), false},
		{"a toggled key", check.KindKey, spread(
			whole(1, check.Toggle{Op: "a"}, false), whole(2, check.Use{}, false),
			whole(1, check.Toggle{Op: "b"}, true), whole(2, check.Use{}, true)), true},
		{"a repeat toggled twice", check.KindKey, spread(
			call(1, check.Toggle{Op: "a"}), whole(1, check.Toggle{Op: "a"}, false), whole(2, check.Use{}, true)), false},

		{"one key, two executions", check.KindExecution, spread(
			whole(1, check.Submit{}, a), whole(1, check.Submit{}, b)), false},
		{"what was submitted is gone", check.KindExecution, spread(
			whole(1, check.Submit{}, a), whole(2, check.Status{ID: a}, check.Missing{})), false},
	}
	for _, tt := range tests {
		wrong := violationsIn(check.Object{Kind: tt.kind, Name: "x"}, tt.steps)
		if (len(wrong) == 0) != tt.ok {
			t.Errorf("%s: %v, want right: %v", tt.name, wrong, tt.ok)
		}
	}
}

// TestExecutionStates checks which states may follow one another: the state
// machine's transitions, and no step back.
func TestExecutionStates(t *testing.T) {
	queued := func(attempt uint64, restarts int) check.Observation {
		return check.Observation{Status: compute.StatusQueued, Attempt: attempt, Restarts: restarts}
	}
	starting := func(attempt uint64, restarts int) check.Observation {
		return check.Observation{Status: compute.StatusStarting, Attempt: attempt, Restarts: restarts}
	}
	running := func(attempt uint64, restarts int) check.Observation {
		return check.Observation{Status: compute.StatusRunning, Attempt: attempt, Restarts: restarts}
	}
	completed := func(attempt uint64) check.Observation {
		return check.Observation{Status: compute.StatusCompleted, Attempt: attempt}
	}
	cancelled := func(attempt uint64) check.Observation {
		return check.Observation{Status: compute.StatusCancelled, Attempt: attempt}
	}
	tests := []struct {
		name string
		seen []check.Observation
		ok   bool
	}{
		{"to its end", []check.Observation{queued(0, 0), starting(1, 0), running(1, 0), running(1, 0), completed(1), completed(1)}, true},
		{"in leaps", []check.Observation{queued(0, 0), running(1, 0), completed(1)}, true},
		{"stopped while queued", []check.Observation{queued(0, 0), cancelled(0)}, true},
		{"it never started", []check.Observation{starting(1, 0), queued(1, 0), starting(2, 0), running(2, 0), completed(2)}, true},
		{"and nobody saw it queued again", []check.Observation{starting(1, 0), starting(2, 0), queued(3, 0), cancelled(3)}, true},
		{"a retry", []check.Observation{running(1, 0), queued(1, 1), starting(2, 1), running(2, 1), completed(2)}, true},
		{"a retry, seen late", []check.Observation{running(1, 0), running(3, 2), completed(3)}, true},
		{"the life of another cluster", []check.Observation{running(1, 0), starting(1<<32+1, 1), completed(1<<32 + 1)}, true},

		{"running, then not yet placed", []check.Observation{running(1, 0), queued(0, 0)}, false},
		{"running, then queued without a retry", []check.Observation{running(1, 0), queued(1, 0)}, false},
		{"running, then starting", []check.Observation{running(1, 0), starting(1, 0)}, false},
		{"starting, then not yet placed", []check.Observation{starting(1, 0), queued(0, 0)}, false},
		{"queued again, then running before that", []check.Observation{queued(1, 1), running(1, 0)}, false},
		{"the attempt before", []check.Observation{starting(2, 0), queued(1, 0)}, false},
		{"a retry is forgotten", []check.Observation{queued(1, 1), starting(2, 0)}, false},
		{"another attempt without a retry", []check.Observation{running(1, 0), starting(2, 0)}, false},
		{"running without an attempt", []check.Observation{running(0, 0)}, false},
		{"pending", []check.Observation{{}}, false},
		{"it ended in an earlier attempt", []check.Observation{running(2, 1), completed(1)}, false},
		{"an end is not the end", []check.Observation{completed(1), running(1, 0)}, false},
		{"another end", []check.Observation{completed(1), cancelled(1)}, false},
		{"an end in two attempts", []check.Observation{completed(1), completed(2)}, false},
	}
	id := compute.ExecutionID{UUID: compute.UUID{1}}
	for _, tt := range tests {
		steps := []step{call(1, check.Submit{}), whole(1, check.Submit{}, id)}
		for _, at := range tt.seen {
			steps = append(steps, whole(2, check.Status{ID: id}, at))
		}
		if wrong := violationsIn(check.Object{Kind: check.KindExecution, Name: "x"}, spread(steps...)); (len(wrong) == 0) != tt.ok {
			t.Errorf("%s: %v, want right: %v", tt.name, wrong, tt.ok)
		}
	}
}

// TestViolationNamesTheAnswer checks that a violation names the impossible
// answer.
func TestViolationNamesTheAnswer(t *testing.T) {
	wrong := violationsIn(check.Object{Kind: check.KindRegister, Name: "r"}, spread(
		whole(1, check.Write{Value: 1}, true), whole(1, check.Write{Value: 2}, true),
		whole(2, check.Read{}, 1), whole(2, check.Read{}, 2)))
	if len(wrong) != 1 || !strings.Contains(wrong[0].Detail, "{} answered 1, called at 5ns, answered at 6ns") {
		t.Errorf("got %v", wrong)
	}
}

// TestTooLongToCheck checks that an unfinished check does not pass.
func TestTooLongToCheck(t *testing.T) {
	at := int64(0)
	h := check.NewHistory(func() int64 { at++; return at })
	for i := range check.MaxTries + 1 {
		h.Call(check.Object{}, i%4, check.Read{}).Return(0)
	}
	if _, wrong := h.Check(limit); len(wrong) != 1 {
		t.Errorf("%d tries: %v", check.MaxTries+1, wrong)
	}
}

func TestMarks(t *testing.T) {
	a, b := "11111111-1111-4111-8111-111111111111", "22222222-1111-4111-8111-111111111111"
	tests := []struct {
		name  string
		files map[string]string
		want  string // The only violation; "" for none.
	}{
		{"one after the other", map[string]string{
			a + ".1": "start G1,G2 100\nbeat 200\nend 250\n", b + ".1": "start G1 300\nbea",
		}, ""},
		{"twice", map[string]string{a + ".1": "start - 100\nstart - 150\n"}, "double start"},
		{"a GPU in two hands", map[string]string{
			a + ".1": "start G1,G2 100\nbeat 200\n", b + ".1": "start G2 150\nend 160\n",
		}, "overlap of GPU G2"},
		{"two attempts", map[string]string{
			a + ".1": "start G1 100\nbeat 200\n", a + ".2": "start G2 300\nend 400\n",
		}, "too many attempts"},
		{"nothing was started", map[string]string{a + ".1": ""}, ""},
	}
	for _, tt := range tests {
		dir := fstest.MapFS{}
		for name, text := range tt.files {
			dir[name] = &fstest.MapFile{Data: []byte(text)}
		}
		marks, err := check.ReadMarks(dir)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := ""
		for _, v := range check.Marks(marks, nil) {
			got += v.String()
		}
		if (tt.want == "") != (got == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestLedger(t *testing.T) {
	grant := check.Line{Seq: 1, Kind: compute.LedgerGrant, Amount: 10, Balance: 10}
	hold := check.Line{Seq: 2, Kind: compute.LedgerHold, Amount: 4, Execution: "e", Balance: 10, Held: 4}
	release := check.Line{Seq: 3, Kind: compute.LedgerRelease, Amount: 4, Execution: "e", Balance: 10}
	charge := check.Line{Seq: 4, Kind: compute.LedgerCharge, Amount: 3, Execution: "e", Balance: 7}
	again := check.Line{Seq: 5, Kind: compute.LedgerCharge, Amount: 3, Execution: "e", Balance: 4}
	ended := map[string]check.Ended{"e": {Status: compute.StatusCompleted, Billed: 3}}
	tests := []struct {
		name  string
		lines []check.Line
		ended map[string]check.Ended
		want  int
	}{
		{"whole", []check.Line{grant, hold, release, charge}, ended, 0},
		{"not charged", []check.Line{grant, hold, release}, ended, 1},
		{"charged twice", []check.Line{grant, hold, release, charge, again}, ended, 1},
		{"still held", []check.Line{grant, hold}, map[string]check.Ended{"e": {Status: compute.StatusQueued}}, 2},
		{"a line is missing", []check.Line{grant, release, charge}, ended, 2},
		{"nobody's", []check.Line{grant, hold, release, charge}, nil, 1},
		{
			"free, and both sides say so",
			[]check.Line{grant, hold, release},
			map[string]check.Ended{"e": {Status: compute.StatusCompleted, Ran: time.Second}},
			1,
		},
		{
			"it never ran",
			[]check.Line{grant, hold, release},
			map[string]check.Ended{"e": {Status: compute.StatusCompleted}},
			0,
		},
		{
			"our failure is charged",
			[]check.Line{grant, hold, release, charge},
			map[string]check.Ended{"e": {Status: compute.StatusSystemFailure, Billed: 3}},
			1,
		},
	}
	for _, tt := range tests {
		if got := check.Ledger("org", tt.lines, tt.ended); len(got) != tt.want {
			t.Errorf("%s: %v, want %d", tt.name, got, tt.want)
		}
	}
}

// TestResolve checks that an unanswered try must be visible if it took effect,
// and must not be visible if it did not.
func TestResolve(t *testing.T) {
	for _, took := range []bool{true, false} {
		at := int64(0)
		h := check.NewHistory(func() int64 { at++; return at })
		o := check.Object{Kind: check.KindAccount, Name: "a"}
		h.Call(o, 1, check.Grant{Op: "g", Amount: 5})
		h.Call(o, 2, check.Balance{}).Return(check.Money{Balance: 5})
		h.Resolve(o, func(any) (at check.Place) {
			if took {
				at.Seq = 1
			}
			return at
		})
		if _, wrong := h.Check(limit); (len(wrong) == 0) != took {
			t.Errorf("took effect: %v: %v", took, wrong)
		}
	}
}

// TestResolveFindsMissingLines checks that each acknowledged change has
// a line, and that lines are in the order of events.
func TestResolveFindsMissingLines(t *testing.T) {
	tests := []struct {
		name  string
		lines map[string]uint64
		ok    bool
	}{
		{"in order", map[string]uint64{"g": 1, "h": 2}, true},
		{"lost", map[string]uint64{"g": 1}, false},
		{"in another order", map[string]uint64{"g": 2, "h": 1}, false},
		{"a line of nobody between", map[string]uint64{"g": 1, "h": 3}, false},
	}
	for _, tt := range tests {
		at := int64(0)
		h := check.NewHistory(func() int64 { at++; return at })
		o := check.Object{Kind: check.KindAccount, Name: "a"}
		h.Call(o, 1, check.Grant{Op: "g", Amount: 5}).Return(true)
		h.Call(o, 1, check.Grant{Op: "h", Amount: 6}).Return(true)
		h.Resolve(o, func(in any) check.Place { return check.Place{Seq: tt.lines[in.(check.Grant).Op]} })
		if _, wrong := h.Check(limit); (len(wrong) == 0) != tt.ok {
			t.Errorf("%s: %v", tt.name, wrong)
		}
	}
}

// TestUnansweredSettles checks a client that never gets its answer. The end of
// the run may have got it instead, with others before it.
func TestUnansweredSettles(t *testing.T) {
	for _, answered := range []bool{true, false} {
		at := int64(0)
		h := check.NewHistory(func() int64 { at++; return at })
		o := check.Object{Kind: check.KindAccount, Name: "a"}
		lines := map[any]uint64{
			check.Grant{Op: "g", Amount: 9}: 1, check.Hold{Op: "x", Amount: 1}: 2, check.Hold{Op: "y", Amount: 1}: 3,
			check.Settle{Op: "y"}: 4, check.Settle{Op: "x"}: 5,
		}
		h.Call(o, 1, check.Grant{Op: "g", Amount: 9}).Return(true)
		h.Call(o, 1, check.Hold{Op: "x", Amount: 1}).Return(check.Held)
		h.Call(o, 1, check.Hold{Op: "y", Amount: 1}).Return(check.Held)
		h.Call(o, 1, check.Settle{Op: "x"}) // Never answered.
		if answered {
			h.SettleAt(o, -1, "x", at)
			h.SettleAt(o, -1, "y", at)
			h.SettleAt(check.Object{Kind: check.KindAccount, Name: "b"}, -1, "z", at)
		}
		h.Resolve(o, func(in any) check.Place { return check.Place{Seq: lines[in]} })
		h.Call(check.Object{Kind: check.KindAccount, Name: "unsent"}, 1, check.Balance{}).Drop()
		searched := check.Checked{Objects: 1, Operations: 4}
		if answered {
			searched.Operations++ // Released at the end of the run.
		}
		if got, wrong := h.Check(limit); (len(wrong) == 0) != answered || got != searched {
			t.Errorf("answered: %v: searched %+v, want %+v; %v", answered, got, searched, wrong)
		}
	}
}

// TestLongHistory checks, within the time limit of a check, an account with the
// largest number of tries, some of them unanswered.
func TestLongHistory(t *testing.T) {
	at := int64(0)
	h := check.NewHistory(func() int64 { at++; return at })
	o := check.Object{Kind: check.KindAccount, Name: "a"}
	money, lines := check.Money{}, map[string]uint64{}
	for i := range 1_500 {
		grant := check.Grant{Op: fmt.Sprint(i), Amount: compute.Credits(1 + i*7919%9973)}
		switch {
		case i%60 == 0: // No answer and no effect.
			h.Call(o, i%6, grant)
		case i%60 == 30: // No answer, but an effect.
			h.Call(o, i%6, grant)
			money.Balance += grant.Amount
			lines[grant.Op] = uint64(len(lines)) + 1
		case i%3 == 0:
			try := h.Call(o, i%6, grant)
			h.Call(o, (i+1)%6, check.Balance{}).Return(money)
			money.Balance += grant.Amount
			lines[grant.Op] = uint64(len(lines)) + 1
			try.Return(true)
		default:
			h.Call(o, i%6, check.Balance{}).Return(money)
		}
	}
	h.Resolve(o, func(in any) check.Place { return check.Place{Seq: lines[in.(check.Grant).Op]} })
	if _, wrong := h.Check(limit); len(wrong) > 0 {
		t.Error(wrong)
	}
}
