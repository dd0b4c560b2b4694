package statement_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"berth/api/statement"
	"berth/compute"
)

// line returns a ledger line at a time.
func line(seq uint64, at string, kind compute.LedgerKind, amount, balance compute.Credits) *compute.LedgerEntry {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	return &compute.LedgerEntry{
		Seq: seq, At: compute.InstantOf(t), Kind: kind, Amount: amount, Balance: balance, Hash: compute.Hash{byte(seq)},
	}
}

func lines() []*compute.LedgerEntry {
	return []*compute.LedgerEntry{
		line(1, "2026-09-30T23:59:59Z", compute.LedgerGrant, 100, 100),
		line(2, "2026-10-01T00:00:00Z", compute.LedgerHold, 50, 100),
		line(3, "2026-10-01T10:00:00Z", compute.LedgerCharge, 30, 70),
		line(4, "2026-10-01T10:00:00Z", compute.LedgerRelease, 20, 70),
		line(5, "2026-10-31T23:59:59Z", compute.LedgerCharge, 5, 65),
		line(6, "2026-12-01T00:00:00Z", compute.LedgerGrant, 10, 75),
		line(7, "2026-12-02T00:00:00Z", compute.LedgerFork, 0, 75),
	}
}

func TestMonths(t *testing.T) {
	got := statement.Months(slices.Values(lines()))
	want := []struct {
		id                                 string
		opening, granted, charged, closing compute.Credits
		charges, days                      int
		last                               uint64
	}{
		{"2026-09", 0, 100, 0, 100, 0, 0, 1},
		{"2026-10", 100, 0, 35, 65, 2, 2, 5},
		{"2026-12", 65, 10, 0, 75, 0, 0, 7}, // In November nothing happened.
	}
	if len(got) != len(want) {
		t.Fatalf("%d months: %+v", len(got), got)
	}
	for i, w := range want {
		m := got[i]
		if m.ID() != w.id || m.Opening != w.opening || m.Granted != w.granted || m.Charged != w.charged ||
			m.Closing != w.closing || m.Charges != w.charges || len(m.Days) != w.days || m.Last != w.last ||
			m.Hash != (compute.Hash{byte(w.last)}) || m.Opening+m.Granted-m.Charged != m.Closing {
			t.Errorf("%s: %+v", w.id, m)
		}
	}
	if d := got[1].Days[1]; d.Date.Day() != 31 || d.Charges != 1 || d.Charged != 5 {
		t.Errorf("the last day is %+v", d)
	}
	if statement.Months(slices.Values([]*compute.LedgerEntry(nil))) != nil {
		t.Error("an empty ledger has months")
	}
}

// TestPDF prints the same month as the same bytes, whatever its organization is called.
func TestPDF(t *testing.T) {
	months := statement.Months(slices.Values(lines()))
	for _, name := range []string{"Lab", "", "Größe & Söhne", "実験室", "a\nb\x00(c)\\", string(bytes.Repeat([]byte("long "), 100))} {
		heading := statement.Heading{ID: "2026-10-00000001", Name: name, Slug: "lab"}
		one, err := statement.PDF(&months[1], heading)
		two, err2 := statement.PDF(&months[1], heading)
		if err != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%.20q: %v, %v, equal %v", name, err, err2, bytes.Equal(one, two))
		}
		if !bytes.HasPrefix(one, []byte("%PDF-")) || bytes.Count(one, []byte("/Type /Page\n")) != 1 {
			t.Errorf("%.20q: no PDF of one page", name)
		}
	}
}

// TestPDFOfDraft marks the statement of a month that goes on, and has room for all days.
func TestPDFOfDraft(t *testing.T) {
	var all []*compute.LedgerEntry
	for day := range 31 {
		at := time.Date(2026, 10, day+1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
		all = append(all, line(uint64(day+1), at, compute.LedgerCharge, 1, 0))
	}
	months := statement.Months(slices.Values(all))
	heading := statement.Heading{ID: "2026-10-00000001", Name: "Lab", Slug: "lab"}
	final := mustPDF(t, &months[0], heading)
	heading.Draft = true
	draft := mustPDF(t, &months[0], heading)
	const title = "Draft statement 2026-10 of lab"
	if bytes.Contains(final, utf16Of(title)) || !bytes.Contains(draft, utf16Of(title)) {
		t.Error("a draft is not marked as such, or a final statement is")
	}
}

// mustPDF prints a statement, which has one page.
func mustPDF(t *testing.T, m *statement.Month, h statement.Heading) []byte {
	t.Helper()
	text, err := statement.PDF(m, h)
	if err != nil || bytes.Count(text, []byte("/Type /Page\n")) != 1 {
		t.Fatalf("%+v: no PDF of one page, %v", h, err)
	}
	return text
}

// utf16Of returns a title as PDF has it.
func utf16Of(ascii string) []byte {
	var out []byte
	for i := range len(ascii) {
		out = append(out, 0, ascii[i])
	}
	return out
}
