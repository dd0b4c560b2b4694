package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/ledger"
	"berth/fsm/store"
)

// TestPartialDecodeKnowsAllFields fails when a field is added to a record,
// until the partial decode handles it: is it a field that checks, indexes,
// counts or filters use? Then the partial decode must read it.
func TestPartialDecodeKnowsAllFields(t *testing.T) {
	for name, test := range map[string]struct {
		schema *store.Schema
		last   int
	}{
		"op":   {opSchema, 6},
		"line": {ledger.Schema, ledger.HashField},
	} {
		if last := test.schema.LastField(); last != test.last {
			t.Errorf("the last field of an %s is %d, its partial decode knows %d", name, last, test.last)
		}
	}
}

// longHistory returns a populated state with a ledger of several blocks.
func longHistory(t *testing.T) *state {
	t.Helper()
	s := populated(t)
	for range 3 * ledger.BlockLines {
		s.view.meta.Index++
		if r := s.grant(command.Grant{Actor: command.Actor{Root: true}, Org: compute.OrgID{UUID: compute.UUID{3}}, Amount: 5}); r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
	}
	if s.view.ledger.SealedLines == 0 {
		t.Fatal("nothing is in sealed blocks")
	}
	return s
}

// restored writes a snapshot of s and reads it.
func restored(t *testing.T, s *state) (*state, error) {
	t.Helper()
	var data bytes.Buffer
	if err := s.publish().WriteSnapshot(&data); err != nil {
		t.Fatal(err)
	}
	return readSnapshot(&data)
}

func TestRestoreKeepsFinalRecords(t *testing.T) {
	s := longHistory(t)
	back, err := restored(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if back.view.Hash() != s.view.Hash() || back.view.executions.ColdLen() != 1 || back.view.attempts.ColdLen() != 1 ||
		back.view.ledger.SealedLines != s.view.ledger.SealedLines || back.view.ops.Len() != s.view.ops.Len() {
		t.Error("the restored state is another one")
	}
	if err := back.publish().Check(); err != nil {
		t.Error(err)
	}
}

// TestRestoreChecksFinalRecords breaks final records, each time with valid
// hashes.
func TestRestoreChecksFinalRecords(t *testing.T) {
	id := compute.ExecutionID{UUID: compute.UUID{11}}
	ended := func(f func(*compute.Execution)) func(*state) {
		return func(s *state) {
			e, _ := s.view.executions.Get(id)
			f(e)
			s.putExecution(e)
		}
	}
	attempt := func(f func(*compute.Attempt)) func(*state) {
		return func(s *state) {
			a, _ := s.view.attempts.Get(numberKey{id.UUID, 1})
			f(a)
			s.view.putAttempt(a)
		}
	}
	lines := func(f func([]*compute.LedgerEntry) []*compute.LedgerEntry) func(*state) {
		return func(s *state) {
			all := f(slices.Collect(s.view.ledger.Values()))
			s.view.ledger = ledger.New()
			for _, e := range all {
				s.view.ledger.Put(e)
			}
		}
	}
	line := func(n int, f func(*compute.LedgerEntry)) func(*state) {
		return lines(func(all []*compute.LedgerEntry) []*compute.LedgerEntry {
			f(all[n-1])
			return all
		})
	}
	tests := []struct {
		name  string
		spoil func(*state)
		want  string
	}{
		{"held", ended(func(e *compute.Execution) { e.Held = 5 }), "still set aside"},
		{"negative", ended(func(e *compute.Execution) { e.Billed = -1 }), "negative credits"},
		{"failure charged", ended(func(e *compute.Execution) { e.Status = compute.StatusSystemFailure }), "was charged"},
		{"no organization", ended(func(e *compute.Execution) { e.Org.UUID[0]++ }), "no organization"},
		{"a status nobody knows", ended(func(e *compute.Execution) { e.Status = 200 }), ""},
		{"an attempt too new", attempt(func(a *compute.Attempt) { a.Epoch = 9 }), "attempt 9 of 0b000000-0000-0000-0000-000000000000 has no execution"},
		{"an attempt of nothing", attempt(func(a *compute.Attempt) { a.Execution.UUID[15]++ }), "has no execution"},
		{"an end that is none", attempt(func(a *compute.Attempt) { a.Status = compute.StatusRunning }), "ended as running"},
		{"preempted", attempt(func(a *compute.Attempt) { a.PreemptAt = 7 }), "which it may not be"},
		{"an amount", line(70, func(e *compute.LedgerEntry) { e.Amount++ }), "line 70 does not add up"},
		{"a note", line(100, func(e *compute.LedgerEntry) { e.Note = "forged" }), "chain breaks at line 100"},
		{"a hash", line(65, func(e *compute.LedgerEntry) { e.Hash[1]++ }), "chain breaks at line 65"},
		{"negative amount", line(66, func(e *compute.LedgerEntry) { e.Amount = -e.Amount }), "negative amount"},
		{"a line gone", lines(func(all []*compute.LedgerEntry) []*compute.LedgerEntry {
			return slices.Delete(all, 80, 81)
		}), "line 81 is missing"},
		{"the end gone", lines(func(all []*compute.LedgerEntry) []*compute.LedgerEntry {
			return all[:len(all)-1]
		}), "does not match its lines"},
		{"a brake that nobody holds", func(s *state) {
			s.view.meta.Format, s.view.meta.Brake.Since = format.Trust, s.view.meta.Now
			change(s.view.nodes.Records, compute.NodeID{UUID: compute.UUID{1}}, func(n *compute.Node) { n.Format = format.Newest })
		}, "a brake holds since"},
		{"a ledger gone", lines(func([]*compute.LedgerEntry) []*compute.LedgerEntry { return nil }), "does not match its lines"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := longHistory(t)
			if test.want == "" {
				s.view.executions.Put(&compute.Execution{ID: id, Status: 200})
			} else {
				test.spoil(s)
			}
			if _, err := restored(t, s); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("restored with %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestBundlesAreThoseInBlobStores(t *testing.T) {
	s := populated(t)
	e, _ := s.view.executions.Get(compute.ExecutionID{UUID: compute.UUID{11}})
	for i, ref := range []compute.BundleRef{
		{Hash: compute.Hash{1}, Size: 3, Inline: []byte("abc")}, {Hash: compute.Hash{2}, Size: 1 << 20}, {},
	} {
		for _, status := range []compute.Status{compute.StatusCompleted, compute.StatusQueued} {
			e := *e
			e.ID.UUID[0], e.Status, e.Bundle = byte(100+10*i)+byte(status), status, ref
			s.view.executions.Put(&e)
		}
	}
	if got := slices.Collect(s.view.Bundles()); !slices.Equal(got, []compute.Hash{{2}, {2}}) {
		t.Errorf("the bundles are %v", got)
	}
}
