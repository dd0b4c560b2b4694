package compute

// LedgerKind is what a ledger entry does to an account.
type LedgerKind uint8

// The kinds of entries. Values are written to disk: append only.
const (
	LedgerGrant   LedgerKind = iota // Balance rises.
	LedgerHold                      // Set aside: held rises.
	LedgerRelease                   // A hold is given back: held falls.
	LedgerCharge                    // Balance falls; always with the release of its hold.
	LedgerFork                      // Nothing moves: another life of the cluster goes on from here.
)

var ledgerKindNames = names{"grant", "hold", "release", "charge", "fork"}

// String returns the kind as clients read it.
func (k LedgerKind) String() string { return ledgerKindNames.text(uint8(k)) }

// MarshalText returns what String returns.
func (k LedgerKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText accepts what String returns.
func (k *LedgerKind) UnmarshalText(text []byte) error {
	v, err := ledgerKindNames.value("ledger kind", text)
	*k = LedgerKind(v)
	return err
}

// LedgerEntry is one line of an organization's ledger. Each carries the hash
// of the line before it, so that a change of any line is found.
type LedgerEntry struct {
	Org       OrgID       `cbor:"1,keyasint"`
	Seq       uint64      `cbor:"2,keyasint"` // 1, 2, 3, ... per organization.
	Index     uint64      `cbor:"3,keyasint"` // Raft index of the entry that wrote it.
	At        Instant     `cbor:"4,keyasint"`
	Kind      LedgerKind  `cbor:"5,keyasint,omitempty"`
	Amount    Credits     `cbor:"6,keyasint"` // Never negative; Kind has the direction.
	Execution ExecutionID `cbor:"7,keyasint,omitempty"`
	Epoch     uint64      `cbor:"8,keyasint,omitempty"`
	Note      string      `cbor:"9,keyasint,omitempty"` // Why, for people.
	Balance   Credits     `cbor:"10,keyasint"`          // After this line.
	Held      Credits     `cbor:"11,keyasint"`          // After this line.
	Hash      Hash        `cbor:"12,keyasint"`          // Over the line before it and this one.
}

// Account is where an organization's credits stand. Available is Balance-Held.
type Account struct {
	Org       OrgID   `cbor:"1,keyasint"`
	Balance   Credits `cbor:"2,keyasint"`
	Held      Credits `cbor:"3,keyasint"`
	Granted   Credits `cbor:"4,keyasint"`           // Ever.
	Charged   Credits `cbor:"5,keyasint"`           // Ever.
	Month     int     `cbor:"6,keyasint,omitempty"` // Year×12+month-1 that InMonth is of.
	InMonth   Credits `cbor:"7,keyasint,omitempty"` // Charged in Month.
	Seq       uint64  `cbor:"8,keyasint"`           // Of the last line.
	Head      Hash    `cbor:"9,keyasint"`           // Of the last line.
	UpdatedAt Instant `cbor:"10,keyasint"`
}

// Available returns what can still be set aside.
func (a *Account) Available() Credits { return a.Balance - a.Held }

// Callback is one outbox row: a URL that must hear of an execution's end.
type Callback struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Number    int         `cbor:"2,keyasint"` // Position in the execution's list.
	URL       string      `cbor:"3,keyasint"`
	CreatedAt Instant     `cbor:"4,keyasint"`
}
