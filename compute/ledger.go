package compute

// LedgerKind is the effect of a ledger entry on an account.
type LedgerKind uint8

// The kinds of entries. Values are written to disk: append only.
const (
	LedgerGrant   LedgerKind = iota // Balance rises.
	LedgerHold                      // Credits are set aside: held rises.
	LedgerRelease                   // A hold is released: held falls.
	LedgerCharge                    // Balance falls; always with the release of its hold.
	LedgerFork                      // No credits move: a new epoch of the cluster continues from here.
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

// LedgerEntry is one line of an organization's ledger. Each contains the hash
// of the previous line, so that a change of any line is detected.
type LedgerEntry struct {
	Org       OrgID       `cbor:"1,keyasint"`
	Seq       uint64      `cbor:"2,keyasint"` // 1, 2, 3, ... per organization.
	Index     uint64      `cbor:"3,keyasint"` // Raft index of the entry that wrote it.
	At        Instant     `cbor:"4,keyasint"`
	Kind      LedgerKind  `cbor:"5,keyasint,omitempty"`
	Amount    Credits     `cbor:"6,keyasint"` // Never negative; Kind gives the direction.
	Execution ExecutionID `cbor:"7,keyasint,omitempty"`
	Epoch     uint64      `cbor:"8,keyasint,omitempty"`
	Note      string      `cbor:"9,keyasint,omitempty"` // Why, for people.
	Balance   Credits     `cbor:"10,keyasint"`          // After this line.
	Held      Credits     `cbor:"11,keyasint"`          // After this line.
	Hash      Hash        `cbor:"12,keyasint"`          // Over the previous line and this one.
}

// Account is the state of an organization's credits. Available is Balance-Held.
type Account struct {
	Org       OrgID   `cbor:"1,keyasint"`
	Balance   Credits `cbor:"2,keyasint"`
	Held      Credits `cbor:"3,keyasint"`
	Granted   Credits `cbor:"4,keyasint"`           // In total.
	Charged   Credits `cbor:"5,keyasint"`           // In total.
	Month     int     `cbor:"6,keyasint,omitempty"` // Month of InMonth, as Year×12+month-1.
	InMonth   Credits `cbor:"7,keyasint,omitempty"` // Charged in Month.
	Seq       uint64  `cbor:"8,keyasint"`           // Number of the last line.
	Head      Hash    `cbor:"9,keyasint"`           // Hash of the last line.
	UpdatedAt Instant `cbor:"10,keyasint"`
}

// Available returns the credits that can still be held.
func (a *Account) Available() Credits { return a.Balance - a.Held }
