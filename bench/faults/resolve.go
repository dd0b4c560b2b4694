package faults

import (
	"slices"

	"berth/bench/faults/check"
	"berth/compute"
)

// closer is the client of what happened by itself, or as the books were closed.
const closer = -1

// moves is what the ledger says of the credits of one operation.
type moves struct {
	hold    uint64   // The line that set them aside first; 0 for none.
	renewed []uint64 // The lines that gave them back to set them aside anew.
	settled check.Place
}

// movesOf returns what became of the credits of the operation that is a tag.
func (b *books) movesOf(op string) (m moves) {
	id := b.byTag[op]
	if id == "" {
		return m
	}
	for _, l := range b.lines {
		if l.Execution != id {
			continue
		}
		switch l.Kind {
		case compute.LedgerHold:
			if m.hold == 0 {
				m.hold = l.Seq
				continue
			}
			m.renewed = append(m.renewed, m.settled.Seq)
			m.settled.Seq = 0
		case compute.LedgerRelease:
			m.settled.Seq = l.Seq
		case compute.LedgerCharge:
			m.settled.Charge += l.Amount
		case compute.LedgerGrant, compute.LedgerFork: // Of no execution.
		}
	}
	return m
}

// place returns the place in the ledger of a change of an account: a grant has
// its operation as the note, a hold and what gives it back are of the execution
// with its tag.
func (b *books) place(in any) check.Place {
	switch in := in.(type) {
	case check.Grant:
		for _, l := range b.lines {
			if l.Kind == compute.LedgerGrant && l.Execution == "" && l.Note == in.Op {
				return check.Place{Seq: l.Seq}
			}
		}
	case check.Hold:
		return check.Place{Seq: b.movesOf(in.Op).hold}
	case check.Settle:
		return b.movesOf(in.Op).settled
	case check.Renew:
		return check.Place{Seq: in.Seq}
	}
	return check.Place{}
}

// operations returns the operations that made executions.
func (b *books) operations() []string {
	var ops []string
	for op := range b.byTag {
		if op != parkedTag && op != markedTag && op != workingTag {
			ops = append(ops, op)
		}
	}
	return slices.Sorted(slices.Values(ops))
}

// works reports whether the execution of an operation ends by itself.
func (b *books) works(op string) bool {
	e := b.executions[b.byTag[op]]
	return e.Metadata != nil && slices.Contains(e.Metadata.Tags, workingTag)
}

// resolve tells the history of an account what has happened by itself, and where
// the ledger has all changes. What works may have ended, or have been queued
// again, at any time from its submit on; nobody stopped what waits, but clients,
// before the books were being closed. It returns how many of those that worked
// were charged.
func (b *books) resolve(h *check.History, account check.Object, closing int64) (charged int) {
	for _, op := range b.operations() {
		m, from := b.movesOf(op), closing
		if asked, ok := h.HeldAt(account, op); ok && b.works(op) {
			from = asked
			if m.settled.Charge > 0 {
				charged++
			}
		}
		for _, seq := range m.renewed {
			h.RenewAt(account, closer, op, seq, from)
		}
		if m.settled.Seq != 0 {
			h.SettleAt(account, closer, op, from)
		}
	}
	h.Resolve(account, b.place)
	return charged
}
