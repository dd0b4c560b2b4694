package command

import "berth/compute"

// Command is one change of the state: a payload below, by value, that has a row
// in the table of commands. Encode makes a frame of it, Apply decides it on every
// replica alike.
type Command any

// Op names the request behind a command, so that a repeat of it gives the
// first answer. A zero ID is never remembered.
type Op struct {
	ID      compute.OpID  `cbor:"1,keyasint"`
	Org     compute.OrgID `cbor:"2,keyasint,omitempty"` // The scope in which ID is unique.
	Request compute.Hash  `cbor:"3,keyasint"`           // Hash of the request: an ID with another hash is a conflict.
}

// Actor is the sender of a request. Apply checks again that the credential is still
// good, so that a revocation holds from the next entry on.
type Actor struct {
	User         compute.UserID `cbor:"1,keyasint"`
	Key          compute.KeyID  `cbor:"2,keyasint,omitempty"` // Zero with an access token.
	TokenVersion uint64         `cbor:"3,keyasint,omitempty"` // Version of the access token, or of the root token.
	Org          compute.OrgID  `cbor:"4,keyasint"`           // The organization it acts in.
	Root         bool           `cbor:"5,keyasint,omitempty"` // The cluster's root token: no user, no organization.

	// The address of the client and the identifier of its request, for the audit
	// record of a command that has one. See View.Audits.
	From    string `cbor:"80,keyasint,omitempty"`
	Request string `cbor:"81,keyasint,omitempty"`
}

// Result is the decision of Apply about one command. It travels as CBOR to the
// node that proposed it.
type Result struct {
	Refusal   *compute.Error      `cbor:"1,keyasint,omitempty"` // Why nothing changed.
	Repeat    bool                `cbor:"2,keyasint,omitempty"` // The op was known; this is its first answer.
	Execution compute.ExecutionID `cbor:"3,keyasint,omitempty"`
	Status    compute.Status      `cbor:"4,keyasint,omitempty"`
	ID        compute.UUID        `cbor:"5,keyasint,omitempty"` // Identifier of the created record, such as a key.
	Count     int                 `cbor:"6,keyasint,omitempty"` // Such as assignments placed.

	// The record that the request changed, as it was then, for the answer, also on a
	// repeat.
	Key  *compute.Key `cbor:"7,keyasint,omitempty"` // Without Lookup and Hash.
	Node *ShownNode   `cbor:"8,keyasint,omitempty"`

	Uncharged compute.Credits `cbor:"9,keyasint,omitempty"` // The part of a batch's use that nothing covered.
}

// ShownNode is a node as an answer shows it.
type ShownNode struct {
	Node    compute.Node `cbor:"1,keyasint"`
	Live    int          `cbor:"2,keyasint,omitempty"` // Attempts on it.
	Leaving int          `cbor:"3,keyasint,omitempty"` // Those of them that are asked to end.
}
