package ledger

import (
	"bytes"
	"strings"
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

// TestAppendChains appends the lines that Chain and Put make, and compares their hashes,
// their sums and their encodings.
func TestAppendChains(t *testing.T) {
	made, put := New(), New()
	var head compute.Hash
	for seq := uint64(1); seq <= 2*BlockLines+3; seq++ {
		e := compute.LedgerEntry{
			Org: compute.OrgID{UUID: compute.UUID{1}}, Seq: seq, At: compute.Instant(seq), Amount: compute.Credits(seq) << 30,
			Note: strings.Repeat("é", int(seq*5)), Hash: compute.Hash{9}, // Filled in by Append.
		}
		chained, appended := e, e
		chained.Hash = Chain(head, e)
		put.Put(&chained)
		made.Append(head, &appended)
		if appended != chained {
			t.Fatalf("line %d is %+v, want %+v", seq, appended, chained)
		}
		head = appended.Hash
	}
	n, sum := made.Digest()
	if wantN, want := put.Digest(); n != wantN || sum != want {
		t.Errorf("%d lines, sum %v, want %d, %v", n, sum, wantN, want)
	}
	var texts [][]byte
	put.Each(func(text []byte) { texts = append(texts, bytes.Clone(text)) })
	made.Each(func(text []byte) {
		if !bytes.Equal(text, texts[0]) {
			t.Errorf("a line is %x, want %x", text, texts[0])
		}
		texts = texts[1:]
	})
	if made.SealedLines != 2*BlockLines {
		t.Errorf("%d lines are sealed", made.SealedLines)
	}
}
