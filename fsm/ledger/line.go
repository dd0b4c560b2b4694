package ledger

import (
	"crypto/sha256"
	"fmt"

	"berth/compute"
	"berth/fsm/store"
)

// Schema is the schema of lines.
//
//nolint:gochecknoglobals // Immutable.
var Schema = store.SchemaOf[compute.LedgerEntry]()

// Line is a line of a ledger as far as it is checked.
type Line struct {
	Org     compute.OrgID
	Seq     uint64
	Kind    compute.LedgerKind
	Amount  compute.Credits
	Balance compute.Credits
	Held    compute.Credits
	Hash    compute.Hash
}

// ParseLine decodes a line as far as it is checked. It reports false for data that
// Schema does not accept.
func ParseLine(data []byte) (l Line, ok bool) {
	f := Schema.FieldsOf(data)
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		n, _ := store.Number(item)
		switch key {
		case 1:
			l.Org.UUID = store.ID(item)
		case 2:
			l.Seq = uint64(n)
		case 5:
			l.Kind = compute.LedgerKind(n)
		case 6:
			l.Amount = compute.Credits(n)
		case 10:
			l.Balance = compute.Credits(n)
		case 11:
			l.Held = compute.Credits(n)
		case HashField:
			copy(l.Hash[:], item[2:]) // It is the last field.
		}
	}
	return l, f.Complete()
}

// Follows returns an error if the line with the encoding text does not follow
// the line before, the zero line for the first.
func (l *Line) Follows(before *Line, text []byte) error {
	balance, held := before.Balance, before.Held
	switch l.Kind {
	case compute.LedgerGrant:
		balance += l.Amount
	case compute.LedgerHold:
		held += l.Amount
	case compute.LedgerRelease:
		held -= l.Amount
	case compute.LedgerCharge:
		balance -= l.Amount
	case compute.LedgerFork: // It moves nothing.
	}
	switch {
	case l.Seq != before.Seq+1:
		return fmt.Errorf("ledger of %s: line %d is missing", l.Org, before.Seq+1)
	case l.Amount < 0:
		return fmt.Errorf("ledger of %s: line %d has a negative amount", l.Org, l.Seq)
	case l.Balance != balance || l.Held != held:
		return fmt.Errorf("ledger of %s: line %d does not add up", l.Org, l.Seq)
	case l.Hash != chained(before.Hash, text):
		return fmt.Errorf("ledger of %s: the chain breaks at line %d", l.Org, l.Seq)
	}
	return nil
}

// Chain returns the hash of a line that follows the line with hash before.
func Chain(before compute.Hash, e compute.LedgerEntry) compute.Hash {
	e.Hash = compute.Hash{}
	return sha256.Sum256(append(before[:], store.MustEncode(&e)...))
}
