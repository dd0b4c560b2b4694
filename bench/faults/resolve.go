package faults

import (
	"slices"

	"berth/bench/faults/check"
	"berth/compute"
)

// closer is the client of events that happened by themselves or while the run
// ended.
const closer = -1

// postings are the ledger lines of one operation.
type postings struct {
	hold    uint64   // The line of the first hold; 0 for none.
	renewed []uint64 // The lines that released the credits before another hold.
	settled check.Place
}

// postingsOf returns the postings of the operation that a tag names.
func (f *finalState) postingsOf(op string) (p postings) {
	id := f.byTag[op]
	if id == "" {
		return p
	}
	for _, l := range f.lines {
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
		case compute.LedgerGrant, compute.LedgerFork: // They belong to no execution.
		}
	}
	return p
}

// place returns the ledger line of a change to an account. A grant has its
// operation as the note. A hold and its release belong to the execution with
// the operation's tag.
func (f *finalState) place(in any) check.Place {
	switch in := in.(type) {
	case check.Grant:
		for _, l := range f.lines {
			if l.Kind == compute.LedgerGrant && l.Execution == "" && l.Note == in.Op {
				return check.Place{Seq: l.Seq}
			}
		}
	case check.Hold:
		return check.Place{Seq: f.postingsOf(in.Op).hold}
	case check.Settle:
		return f.postingsOf(in.Op).settled
	case check.Renew:
		return check.Place{Seq: in.Seq}
	}
	return check.Place{}
}

// operations returns the operations that made executions.
func (f *finalState) operations() []string {
	var ops []string
	for op := range f.byTag {
		if op != parkedTag && op != markedTag && op != workingTag {
			ops = append(ops, op)
		}
	}
	return slices.Sorted(slices.Values(ops))
}

// works reports whether the execution of an operation ends by itself.
func (f *finalState) works(op string) bool {
	e := f.executions[f.byTag[op]]
	return e.Metadata != nil && slices.Contains(e.Metadata.Tags, workingTag)
}

// resolve adds to an account's history the events that happened by themselves,
// and the ledger position of every change. A working execution may have ended
// or been queued again at any time after its submit. Only clients stop a
// waiting execution, until the run closes the account. resolve returns the
// number of charged working executions.
func (f *finalState) resolve(h *check.History, account check.Object, closing int64) (charged int) {
	for _, op := range f.operations() {
		p, from := f.postingsOf(op), closing
		if asked, ok := h.HeldAt(account, op); ok && f.works(op) {
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
	h.Resolve(account, f.place)
	return charged
}
