package compute

import (
	"fmt"
	"strings"
)

// Limits of published models and of the tokens that are billed.
const (
	MaxModels     = 1000
	MaxModelID    = 128             // Bytes.
	MaxTokenPrice = 1000 * Credit   // Price of a million tokens.
	MaxTokens     = int64(1) << 31  // Tokens of one kind in one row of a batch.
	MaxTokenRows  = 10_000          // Rows in one batch.
	tokensPriced  = uint64(1000000) // Prices are of so many tokens.
)

// Model is a model that every organization may use by its id. A deployment answers for
// it, which its owner pays for by the second.
type Model struct {
	ID         string      `cbor:"1,keyasint"`
	Deployment ExecutionID `cbor:"2,keyasint"`
	Org        OrgID       `cbor:"3,keyasint"` // The owner of the deployment.
	Prices     TokenPrices `cbor:"4,keyasint"`
	CreatedAt  Instant     `cbor:"5,keyasint"`
	ChangedAt  Instant     `cbor:"6,keyasint"`
}

// ValidModelID reports whether a text can be the id of a published model: letters,
// digits and "._:/-", not an execution's id, which names a deployment.
func ValidModelID(id string) bool {
	if id == "" || len(id) > MaxModelID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		mark := c == '.' || c == '_' || c == ':' || c == '/' || c == '-'
		if !letter && (!mark || i == 0 || i == len(id)-1) {
			return false
		}
	}
	_, err := ParseExecutionID(id)
	return err != nil
}

// TokenPrices are the prices of a million tokens.
type TokenPrices struct {
	Prompt     Credits `cbor:"1,keyasint,omitempty"`
	Completion Credits `cbor:"2,keyasint,omitempty"`
}

// Valid reports whether both prices are within bounds.
func (p TokenPrices) Valid() bool {
	return p.Prompt >= 0 && p.Prompt <= MaxTokenPrice && p.Completion >= 0 && p.Completion <= MaxTokenPrice
}

// Cost returns the exact cost of tokens. Prices must be valid, and tokens at most
// MaxTokens.
func (p TokenPrices) Cost(prompt, completion int64) TokenCost {
	parts := uint64(p.Prompt)*uint64(prompt) + uint64(p.Completion)*uint64(completion)
	return TokenCost{Whole: Credits(parts / tokensPriced), Rest: parts % tokensPriced}
}

// TokenCost is an exact sum of costs of tokens: micro-credits, and the rest below one of
// them in millionths.
type TokenCost struct {
	Whole Credits `cbor:"1,keyasint,omitempty"`
	Rest  uint64  `cbor:"2,keyasint,omitempty"`
}

// Plus returns the sum of two costs.
func (c TokenCost) Plus(other TokenCost) TokenCost {
	rest := c.Rest + other.Rest // Each is below a million.
	return TokenCost{c.Whole + other.Whole + Credits(rest/tokensPriced), rest % tokensPriced}
}

// Up returns the cost, rounded up to a micro-credit.
func (c TokenCost) Up() Credits {
	if c.Rest > 0 {
		return c.Whole + 1
	}
	return c.Whole
}

// Payer pays for requests to a published model: an organization, the user and, where
// there is one, the key.
type Payer struct {
	Org  OrgID  `cbor:"1,keyasint"`
	User UserID `cbor:"2,keyasint"`
	Key  KeyID  `cbor:"3,keyasint,omitempty"`
}

// TokenHold is the part of a payer's credits that a node has set aside for requests that
// are under way.
type TokenHold struct {
	Node   NodeID  `cbor:"1,keyasint"`
	Payer  Payer   `cbor:"2,keyasint"`
	Amount Credits `cbor:"3,keyasint"`
	At     Instant `cbor:"4,keyasint"` // When the node last asked for it.
}

// TokenUsage is a payer's use of a model in a minute that is not posted yet.
type TokenUsage struct {
	Payer      Payer     `cbor:"1,keyasint"`
	Model      string    `cbor:"2,keyasint"`
	Minute     int64     `cbor:"3,keyasint"` // Since 1970.
	Prompt     int64     `cbor:"4,keyasint,omitempty"`
	Completion int64     `cbor:"5,keyasint,omitempty"`
	Cost       TokenCost `cbor:"6,keyasint"`
	Requests   int64     `cbor:"7,keyasint,omitempty"`
}

// TokenTotal is an organization's use of a model, and how much of it is posted.
type TokenTotal struct {
	Org        OrgID   `cbor:"1,keyasint"`
	Model      string  `cbor:"2,keyasint"`
	Prompt     int64   `cbor:"3,keyasint,omitempty"`
	Completion int64   `cbor:"4,keyasint,omitempty"`
	Requests   int64   `cbor:"5,keyasint,omitempty"`
	Charged    Credits `cbor:"6,keyasint,omitempty"`
	Rest       uint64  `cbor:"7,keyasint,omitempty"` // Below a micro-credit, in millionths: the next charge has it.
}

// TokenNote returns the note of the ledger lines for the use of a model: the release of
// its hold, and the charge.
func TokenNote(model string, prompt, completion int64) string {
	return fmt.Sprintf("serverless %s: %d prompt and %d completion tokens", model, prompt, completion)
}

// ParseTokenNote is the reverse of TokenNote.
func ParseTokenNote(note string) (model string, prompt, completion int64, ok bool) {
	rest, ok := strings.CutPrefix(note, "serverless ")
	at := strings.LastIndex(rest, ": ")
	if !ok || at < 0 {
		return "", 0, 0, false
	}
	n, err := fmt.Sscanf(rest[at:], ": %d prompt and %d completion tokens", &prompt, &completion)
	if n != 2 || err != nil || TokenNote(rest[:at], prompt, completion) != note {
		return "", 0, 0, false
	}
	return rest[:at], prompt, completion, true
}
