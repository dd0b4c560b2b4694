package compute

// AuditRecord is one line of an audit trail: an actor, its action, from where and when.
// Each contains the hash of the previous line.
type AuditRecord struct {
	Org     OrgID   `cbor:"1,keyasint"` // Zero for the cluster's trail.
	Seq     uint64  `cbor:"2,keyasint"` // 1, 2, 3, ... per trail.
	Index   uint64  `cbor:"3,keyasint"` // Raft index of the entry that made the change.
	At      Instant `cbor:"4,keyasint"`
	User    UserID  `cbor:"5,keyasint,omitempty"`
	Key     KeyID   `cbor:"6,keyasint,omitempty"` // The API key that the user used.
	Root    bool    `cbor:"7,keyasint,omitempty"` // The cluster's root token was used.
	Action  string  `cbor:"8,keyasint"`           // Such as key.create.
	Target  string  `cbor:"9,keyasint,omitempty"` // The thing that was changed.
	Detail  string  `cbor:"10,keyasint,omitempty"`
	From    string  `cbor:"11,keyasint,omitempty"` // Address of the client.
	Request string  `cbor:"12,keyasint,omitempty"` // X-Request-Id.
	Hash    Hash    `cbor:"13,keyasint"`           // Over the line before and this one.

	// Routine says that any member can repeat the action. Such lines have a share of the
	// trail of their own.
	Routine bool   `cbor:"14,keyasint,omitempty"`
	Place   uint64 `cbor:"15,keyasint,omitempty"` // Number among the lines of its share; 0 in older lines.
	Before  Hash   `cbor:"16,keyasint,omitzero"`  // Hash of the line before, once that is gone; not part of Hash.
}
