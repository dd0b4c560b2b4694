package ledger

import (
	"testing"

	"berth/compute"
)

// TestStoreKeepsEveryLine writes ledgers of several sealed blocks, one with a broken
// chain, and reads them from every line on.
func TestStoreKeepsEveryLine(t *testing.T) {
	b := New()
	var all []*compute.LedgerEntry
	orgs := []compute.OrgID{{UUID: compute.UUID{1}}, {UUID: compute.UUID{2}}, {UUID: compute.UUID{3}}}
	const lines = 3*BlockLines + 5
	for i, org := range orgs {
		var head compute.Hash
		for seq := uint64(1); seq <= lines/uint64(1+i); seq++ {
			e := &compute.LedgerEntry{
				Org: org, Seq: seq, Index: 10 * seq, At: 1_790_000_000_000 + compute.Instant(seq),
				Kind: compute.LedgerKind(seq % 4), Amount: compute.Credits(seq * 77), Balance: compute.Credits(seq),
				Execution: compute.ExecutionID{UUID: compute.UUID{byte(seq / 3)}}, Note: "note"[:seq%5],
			}
			e.Hash = Chain(head, *e)
			if i == 1 && seq%50 == 7 {
				e.Hash[3]++ // Somebody wrote to it.
			}
			head = e.Hash
			b.Put(e)
			all = append(all, e)
		}
	}
	if b.Len() != len(all) || b.SealedLines != BlockLines*5 {
		t.Fatalf("%d lines, %d of them in sealed blocks, want %d", b.Len(), b.SealedLines, len(all))
	}
	n := 0
	for e := range b.Values() {
		if *e != *all[n] {
			t.Fatalf("line %d is %+v, want %+v", n, e, all[n])
		}
		n++
	}
	b.Share()
	view := b
	view.Freeze()
	for from := range uint64(lines + 2) {
		for _, org := range orgs {
			want := []compute.LedgerEntry{}
			for _, e := range all {
				if e.Org == org && e.Seq >= from {
					want = append(want, *e)
				}
			}
			i := 0
			for e := range view.Entries(org, from) {
				if i == len(want) || *e != want[i] {
					t.Fatalf("from %d of %s, line %d is %+v", from, org, i, e)
				}
				i++
			}
			if i != len(want) {
				t.Fatalf("from %d of %s: %d lines, want %d", from, org, i, len(want))
			}
		}
	}
}
