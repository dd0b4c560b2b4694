package fsm

import (
	"crypto/sha256"
	"fmt"

	"berth/compute"
	"berth/fsm/store"
)

//nolint:gochecknoglobals // Immutable.
var lineForm = store.SchemaOf[compute.LedgerEntry]()

// ledgerLine is what the lines of a ledger are checked by.
type ledgerLine struct {
	org     compute.OrgID
	seq     uint64
	kind    compute.LedgerKind
	amount  compute.Credits
	balance compute.Credits
	held    compute.Credits
	hash    compute.Hash
}

// outlineLine reads an encoded line. It reports false for what is none.
func outlineLine(data []byte) (l ledgerLine, ok bool) {
	f := lineForm.FieldsOf(data)
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		n, _ := store.Number(item)
		switch key {
		case 1:
			l.org.UUID = store.ID(item)
		case 2:
			l.seq = uint64(n)
		case 5:
			l.kind = compute.LedgerKind(n)
		case 6:
			l.amount = compute.Credits(n)
		case 10:
			l.balance = compute.Credits(n)
		case 11:
			l.held = compute.Credits(n)
		case hashKey:
			copy(l.hash[:], item[2:]) // It is the last field.
		}
	}
	return l, f.Complete()
}

// follows returns what is wrong with a line, of the encoding text, behind
// another one, or behind none.
func (l *ledgerLine) follows(before *ledgerLine, text []byte) error {
	balance, held := before.balance, before.held
	switch l.kind {
	case compute.LedgerGrant:
		balance += l.amount
	case compute.LedgerHold:
		held += l.amount
	case compute.LedgerRelease:
		held -= l.amount
	case compute.LedgerCharge:
		balance -= l.amount
	case compute.LedgerFork: // It moves nothing.
	}
	switch {
	case l.seq != before.seq+1:
		return fmt.Errorf("ledger of %s: line %d is missing", l.org, before.seq+1)
	case l.amount < 0:
		return fmt.Errorf("ledger of %s: line %d has a negative amount", l.org, l.seq)
	case l.balance != balance || l.held != held:
		return fmt.Errorf("ledger of %s: line %d does not add up", l.org, l.seq)
	case l.hash != chained(before.hash, text):
		return fmt.Errorf("ledger of %s: the chain breaks at line %d", l.org, l.seq)
	}
	return nil
}

// chain returns the hash of a line behind the line with hash before.
func chain(before compute.Hash, e compute.LedgerEntry) compute.Hash {
	e.Hash = compute.Hash{}
	return sha256.Sum256(append(before[:], store.MustEncode(&e)...))
}
