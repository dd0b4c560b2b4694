package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// TestResolve checks an account with one execution that waits and is stopped,
// and one that runs. The running one is queued again once, and ends by itself
// at an unknown time.
func TestResolve(t *testing.T) {
	lines := []check.Line{
		{Kind: compute.LedgerGrant, Amount: 100, Note: "g"},
		{Kind: compute.LedgerHold, Amount: 30, Execution: "P"},
		{Kind: compute.LedgerHold, Amount: 20, Execution: "W"},
		{Kind: compute.LedgerRelease, Amount: 20, Execution: "W"},
		{Kind: compute.LedgerHold, Amount: 20, Execution: "W"},
		{Kind: compute.LedgerRelease, Amount: 20, Execution: "W"},
		{Kind: compute.LedgerCharge, Amount: 7, Execution: "W"},
		{Kind: compute.LedgerRelease, Amount: 30, Execution: "P"},
	}
	renewed, ended := check.Money{Balance: 100, Held: 50}, check.Money{Balance: 93, Held: 30}
	tests := []struct {
		name   string
		reads  []check.Money // By one client, after the submits.
		charge any           // The charge that the end reports; nil if nobody read it.
		lines  []check.Line
		want   int
	}{
		{"nobody looked", nil, nil, lines, 0},
		{"it ended early", []check.Money{ended, ended}, compute.Credits(7), lines, 0},
		{"it ended between two reads", []check.Money{renewed, ended}, nil, lines, 0},
		{"it ended late", []check.Money{renewed, renewed}, compute.Credits(7), lines, 0},
		{"it ended, and then not", []check.Money{ended, renewed}, nil, lines, 1},
		{"what is given back for a moment is not seen", []check.Money{{Balance: 100, Held: 30}}, nil, lines, 1},
		{"the charge is not seen", []check.Money{{Balance: 100}}, nil, lines, 1},
		{"another charge was reported", []check.Money{renewed}, compute.Credits(6), lines, 1},
		{"the charge is not in the ledger", nil, compute.Credits(7), slices.Delete(slices.Clone(lines), 6, 7), 1},
	}
	for _, tt := range tests {
		now := int64(0)
		h := check.NewHistory(func() int64 { now++; return now })
		o := check.Object{Kind: check.KindAccount, Name: "a"}
		h.Call(o, 1, check.Grant{Op: "g", Amount: 100}).Return(true)
		h.Call(o, 1, check.Hold{Op: "p", Amount: 30}).Return(check.Held)
		hold := h.Call(o, 2, check.Hold{Op: "w", Amount: 20})
		hold.Return(check.Held)
		for _, m := range tt.reads {
			h.Call(o, 1, check.Balance{}).Return(m)
		}
		if tt.charge != nil {
			h.CallAt(o, 2, check.Settle{Op: "w"}, hold.Called()).Return(tt.charge)
		}
		f := &finalState{
			executions: map[string]wire.ExecutionSummary{
				"P": {Metadata: &wire.Metadata{Tags: []string{parkedTag, "p"}}},
				"W": {Metadata: &wire.Metadata{Tags: []string{workingTag, "w"}}},
			},
			byTag: map[string]string{parkedTag: "P", "p": "P", workingTag: "W", "w": "W"},
			lines: slices.Clone(tt.lines),
		}
		for i := range f.lines {
			f.lines[i].Seq = uint64(i) + 1
		}
		charged := f.resolve(h, o, now)
		if _, wrong := h.Check(time.Minute); len(wrong) != tt.want || (charged == 1) != (len(f.lines) == len(lines)) {
			t.Errorf("%s: %d charged, %v, want %d", tt.name, charged, wrong, tt.want)
		}
	}
}

// TestManyEnds checks an account with the largest number of tries of an object,
// whose executions end while balances are read.
func TestManyEnds(t *testing.T) {
	now := int64(0)
	h := check.NewHistory(func() int64 { now++; return now })
	o := check.Object{Kind: check.KindAccount, Name: "a"}
	f := &finalState{executions: map[string]wire.ExecutionSummary{}, byTag: map[string]string{}}
	money := check.Money{Balance: 1_000_000}
	post := func(kind compute.LedgerKind, amount compute.Credits, op string) {
		l := check.Line{Seq: uint64(len(f.lines)) + 1, Kind: kind, Amount: amount, Execution: op}
		if kind == compute.LedgerGrant {
			l.Execution, l.Note = "", op
		}
		f.lines = append(f.lines, l)
	}
	h.Call(o, 0, check.Grant{Op: "g", Amount: money.Balance}).Return(true)
	post(compute.LedgerGrant, money.Balance, "g")
	read := func() {
		for range 3 {
			h.Call(o, 1, check.Balance{}).Return(money)
		}
	}
	var live []string
	for i := range 220 {
		op := fmt.Sprint("op", i)
		f.byTag[op] = op
		f.executions[op] = wire.ExecutionSummary{Metadata: &wire.Metadata{Tags: []string{workingTag, op}}}
		h.Call(o, i%6, check.Hold{Op: op, Amount: 9}).Return(check.Held)
		post(compute.LedgerHold, 9, op)
		money.Held += 9
		read()
		if live = append(live, op); len(live) < 4 {
			continue
		}
		post(compute.LedgerRelease, 9, live[0])
		post(compute.LedgerCharge, 3, live[0])
		money.Held, money.Balance, live = money.Held-9, money.Balance-3, live[1:]
		read()
	}
	f.resolve(h, o, now)
	if _, wrong := h.Check(time.Minute); len(wrong) > 0 {
		t.Error(wrong)
	}
}
