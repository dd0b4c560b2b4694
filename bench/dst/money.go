package dst

import (
	"berth/compute"
	"berth/fsm"
)

// money audits the ledgers of all organizations, line by line.
type money struct {
	last   map[compute.OrgID]uint64 // Lines already read.
	lines  map[compute.ExecutionID]*account
	grants map[string]int // How often each grant was posted.
}

// account is the ledger's view of one execution.
type account struct {
	held    compute.Credits
	charged compute.Credits
	charges int
	closed  bool // It ended and was checked.
}

func newMoney() money {
	return money{last: map[compute.OrgID]uint64{}, lines: map[compute.ExecutionID]*account{}, grants: map[string]int{}}
}

// read reads the new lines.
func (m *money) read(w *world, view *fsm.View) {
	for _, actor := range w.orgs {
		if view.Account(actor.Org).Seq == m.last[actor.Org] {
			continue
		}
		for line := range view.Ledger(actor.Org, m.last[actor.Org]) {
			m.last[actor.Org] = line.Seq
			m.post(w, line)
		}
	}
}

// post checks one line.
func (m *money) post(w *world, line *compute.LedgerEntry) {
	if line.Kind == compute.LedgerGrant {
		if m.grants[line.Note]++; line.Note != "" && m.grants[line.Note] > 1 && w.grants[line.Note] {
			w.violate("grant %q is posted %d times", line.Note, m.grants[line.Note])
		}
		return
	}
	a := m.lines[line.Execution]
	if a == nil {
		a = &account{}
		m.lines[line.Execution] = a
	}
	if a.closed {
		w.violate("the ledger has a line of %v after it was settled: %v %v", line.Execution, line.Kind, line.Amount)
	}
	switch line.Kind {
	case compute.LedgerHold:
		a.held += line.Amount
	case compute.LedgerRelease:
		a.held -= line.Amount
	case compute.LedgerCharge:
		a.charged += line.Amount
		a.charges++
	case compute.LedgerGrant: // Handled above.
	case compute.LedgerFork: // It belongs to an organization, not an execution.
	}
}

// settle checks the lines of an ended execution.
func (m *money) settle(w *world, e *compute.Execution) {
	a := m.lines[e.ID]
	if a == nil {
		w.violate("execution %v ended and the ledger does not say so", e.ID)
		return
	}
	a.closed = true
	switch {
	case a.held != 0:
		w.violate("execution %v ended and %v is still held for it", e.ID, a.held)
	case a.charges > 1:
		w.violate("execution %v is charged %d times", e.ID, a.charges)
	case a.charged != e.Billed:
		w.violate("execution %v is billed %v, and the ledger says %v", e.ID, e.Billed, a.charged)
	}
}
