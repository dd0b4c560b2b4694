package compute

import (
	"fmt"
	"time"
)

// CallbackWindow is for how long a callback is tried.
const CallbackWindow = 24 * time.Hour

// MaxDeliveryError bounds the recorded error of a failed try, in bytes.
const MaxDeliveryError = 200

// Callback is the notification of a URL about an execution's end, or about a budget.
type Callback struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Number    int         `cbor:"2,keyasint"` // Position in the execution's list.
	URL       string      `cbor:"3,keyasint"`
	CreatedAt Instant     `cbor:"4,keyasint"`

	Tries  int     `cbor:"5,keyasint,omitempty"`
	LastAt Instant `cbor:"6,keyasint,omitempty"`  // When the last try was made.
	Code   int     `cbor:"7,keyasint,omitempty"`  // The HTTP status that it got; 0 for no answer.
	Error  string  `cbor:"8,keyasint,omitempty"`  // Why it failed.
	NextAt Instant `cbor:"9,keyasint,omitempty"`  // When the next try is due; zero for at once.
	DoneAt Instant `cbor:"10,keyasint,omitempty"` // When it was acknowledged.
	Failed bool    `cbor:"11,keyasint,omitempty"` // It was given up.
	Since  Instant `cbor:"12,keyasint,omitempty"` // When somebody asked for it again.

	Alert *BudgetAlert `cbor:"80,keyasint,omitempty"` // It is about a budget, not about the end.

	// Org is whose budget it is about, if no execution reached the level. Execution is
	// zero then.
	Org OrgID `cbor:"81,keyasint,omitempty"`
}

// Owner returns the identifier of c's owner: its execution, or its organization.
func (c *Callback) Owner() UUID { return callbackOwner(c.Execution, c.Org) }

func callbackOwner(id ExecutionID, org OrgID) UUID {
	if org.IsZero() {
		return id.UUID
	}
	return org.UUID
}

// Pending reports whether c still has to be sent.
func (c *Callback) Pending() bool { return c.DoneAt.IsZero() && !c.Failed }

// From returns when its window began.
func (c *Callback) From() Instant { return max(c.CreatedAt, c.Since) }

// WebhookID returns the identifier of c, which is the same on every try.
func (c *Callback) WebhookID() string { return fmt.Sprintf("msg_%s_%d", c.Owner(), c.Number) }

// Delivery is the outcome of one try to send a callback.
type Delivery struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Number    int         `cbor:"2,keyasint"`
	At        Instant     `cbor:"3,keyasint"`
	Delivered bool        `cbor:"4,keyasint,omitempty"`
	Code      int         `cbor:"5,keyasint,omitempty"` // The HTTP status; 0 without an answer.
	Error     string      `cbor:"6,keyasint,omitempty"` // Why it failed.
	NextAt    Instant     `cbor:"7,keyasint,omitempty"` // When the next try is due; zero after the last.
	Org       OrgID       `cbor:"8,keyasint,omitempty"` // As in Callback.
}

// Owner returns the identifier of the callback's owner.
func (d *Delivery) Owner() UUID { return callbackOwner(d.Execution, d.Org) }
