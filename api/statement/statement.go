package statement

import (
	"iter"
	"time"

	"berth/compute"
)

// Day is the sum of charges on one day, UTC.
type Day struct {
	Date    time.Time // Midnight.
	Charges int       // Lines.
	Charged compute.Credits
}

// Month is the sum of the ledger lines of one month, UTC.
type Month struct {
	Start   time.Time // Its first midnight.
	Opening compute.Credits
	Granted compute.Credits
	Charged compute.Credits
	Closing compute.Credits
	Charges int          // Lines.
	Days    []Day        // Those with charges.
	Last    uint64       // Number of its last line.
	Hash    compute.Hash // Hash of its last line.
}

// ID returns the month as "2026-11".
func (m *Month) ID() string { return m.Start.Format("2006-01") }

// End returns the first midnight after the month.
func (m *Month) End() time.Time { return m.Start.AddDate(0, 1, 0) }

// Months returns the months in which a ledger has lines, oldest first. Lines come in
// their order.
func Months(lines iter.Seq[*compute.LedgerEntry]) []Month {
	var out []Month
	balance := compute.Credits(0)
	for line := range lines {
		at := line.At.Time().UTC()
		// Times of lines never decrease: the state has one clock.
		start := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
		if len(out) == 0 || out[len(out)-1].Start.Before(start) {
			out = append(out, Month{Start: start, Opening: balance})
		}
		m := &out[len(out)-1]
		switch line.Kind {
		case compute.LedgerGrant:
			m.Granted += line.Amount
		case compute.LedgerCharge:
			m.charge(at, line.Amount)
		case compute.LedgerHold, compute.LedgerRelease, compute.LedgerFork: // No credits come or go.
		}
		m.Closing, m.Last, m.Hash = line.Balance, line.Seq, line.Hash
		balance = line.Balance
	}
	return out
}

// charge adds a charge.
func (m *Month) charge(at time.Time, amount compute.Credits) {
	date := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	if len(m.Days) == 0 || m.Days[len(m.Days)-1].Date.Before(date) {
		m.Days = append(m.Days, Day{Date: date})
	}
	day := &m.Days[len(m.Days)-1]
	day.Charges++
	day.Charged += amount
	m.Charges++
	m.Charged += amount
}
