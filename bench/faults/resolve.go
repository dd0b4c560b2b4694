package faults

import (
	"slices"

	"berth/bench/faults/check"
	"berth/compute"
)

// closer is the client of what happened by itself, or as the books were closed.
const closer = -1

// postings is what the ledger says of the credits of one operation.
type postings struct {
	hold    uint64   // The line that set them aside first; 0 for none.
	renewed []uint64 // The lines that gave them back to set them aside anew.
	settled check.Place
}

// postingsOf returns what became of the credits of the operation that is a tag.
func (b *books) postingsOf(op string) (p postings) {
	id := b.byTag[op]
	if id == "" {
		return p
	}
	for _, l := range b.lines {
		if l.Execution != id {
			continue
		}
		switch l.Kind {
		case compute.LedgerHold:
			if p.hold == 0 {
				p.hold = l.Seq
				continue
			}
			p.renewed = append(p.renewed, p.settled.Seq)
			p.settled.Seq = 0
		case compute.LedgerRelease:
			p.settled.Seq = l.Seq
		case compute.LedgerCharge:
			p.settled.Charge += l.Amount
		case compute.LedgerGrant, compute.LedgerFork: // Of no execution.
		}
	}
	return p
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
		return check.Place{Seq: b.postingsOf(in.Op).hold}
	case check.Settle:
		return b.postingsOf(in.Op).settled
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
		p, from := b.postingsOf(op), closing
		if asked, ok := h.HeldAt(account, op); ok && b.works(op) {
			from = asked
			if p.settled.Charge > 0 {
				charged++
			}
		}
		for _, seq := range p.renewed {
			h.RenewAt(account, closer, op, seq, from)
		}
		if p.settled.Seq != 0 {
			h.SettleAt(account, closer, op, from)
		}
	}
	h.Resolve(account, b.place)
	return charged
}
