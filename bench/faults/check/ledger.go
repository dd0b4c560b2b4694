package check

import (
	"fmt"
	"time"

	"berth/compute"
)

// Line is one line of an organization's ledger.
type Line struct {
	Seq           uint64
	Kind          compute.LedgerKind
	Amount        compute.Credits
	Execution     string // "" for none.
	Balance, Held compute.Credits
	Note          string
}

// Ended is the end of an execution, as the API reports it.
type Ended struct {
	Status compute.Status
	Billed compute.Credits
	Ran    time.Duration // Runtime of the last attempt's code; 0 if it never ran.
}

// leastCharged is never free: a second of the cheapest profile costs more than
// the smallest credit.
const leastCharged = time.Second

// Ledger returns the violations in the ledger of an organization whose
// executions have all ended. lines are oldest first. Every line must follow
// from the previous one, the sum of credits is constant, and no hold remains.
// Each execution is charged once with the charge it reports, or never if it
// owes nothing.
func Ledger(org string, lines []Line, ended map[string]Ended) []Violation {
	var wrong []Violation
	report := func(object, format string, args ...any) {
		wrong = append(wrong, Violation{What: "ledger", Object: object, Detail: fmt.Sprintf(format, args...)})
	}
	var balance, held compute.Credits
	charges, charged := map[string]int{}, map[string]compute.Credits{}
	for i, l := range lines {
		switch l.Kind {
		case compute.LedgerGrant:
			balance += l.Amount
		case compute.LedgerHold:
			held += l.Amount
		case compute.LedgerRelease:
			held -= l.Amount
		case compute.LedgerCharge:
			balance -= l.Amount
			charges[l.Execution]++
			charged[l.Execution] += l.Amount
		case compute.LedgerFork: // It moves no credits.
		}
		if l.Seq != uint64(i)+1 || l.Amount < 0 {
			report("organization "+org, "line %d has number %d and amount %v", i+1, l.Seq, l.Amount)
		}
		if l.Balance != balance || l.Held != held || held < 0 || balance < 0 {
			report("organization "+org, "line %d says balance %v, held %v; the lines so far give %v and %v",
				l.Seq, l.Balance, l.Held, balance, held)
			return wrong // Later lines would show the same difference.
		}
	}
	if held != 0 {
		report("organization "+org, "everything has ended and %v credits are held", held)
	}
	for _, id := range sortedKeys(ended) {
		e := ended[id]
		switch {
		case !e.Status.Terminal():
			report("execution "+id, "it has not ended: %s", e.Status)
		case charges[id] > 1 || charged[id] != e.Billed:
			report("execution "+id, "%s with %v billed; the ledger charges %d times, %v in all",
				e.Status, e.Billed, charges[id], charged[id])
		case e.Status == compute.StatusCompleted && e.Ran >= leastCharged && e.Billed == 0,
			e.Status == compute.StatusSystemFailure && e.Billed != 0:
			report("execution "+id, "%s after %v, and %v billed", e.Status, e.Ran, e.Billed)
		}
	}
	for _, id := range sortedKeys(charges) {
		if _, known := ended[id]; !known {
			report("execution "+id, "charged %v, and nobody knows it", charged[id])
		}
	}
	return wrong
}
