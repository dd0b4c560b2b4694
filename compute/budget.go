package compute

// Budget limits the spending of an organization, of one of its API keys or of one of its
// members, and notifies a URL as it is used up.
type Budget struct {
	Org        OrgID   `cbor:"1,keyasint"`
	Key        KeyID   `cbor:"2,keyasint,omitempty"` // Zero unless the budget is an API key's.
	User       UserID  `cbor:"3,keyasint,omitempty"` // Zero unless the budget is a member's.
	MaxCredits Credits `cbor:"4,keyasint"`
	Monthly    bool    `cbor:"5,keyasint,omitempty"`  // It begins again with each month, UTC.
	Enforce    bool    `cbor:"6,keyasint,omitempty"`  // It is a ceiling: work that may exceed it is refused or stopped.
	URL        string  `cbor:"7,keyasint,omitempty"`  // Is notified of the levels; "" for none.
	Charged    Credits `cbor:"8,keyasint,omitempty"`  // Since it was set, or in Month.
	Month      int     `cbor:"9,keyasint,omitempty"`  // Year × 12 + month − 1, if it is monthly.
	Level      int     `cbor:"10,keyasint,omitempty"` // The highest of BudgetLevels that was reported.
	ChangedAt  Instant `cbor:"11,keyasint"`
	// CheckAt is when a budget whose key or account is gone is removed if none of their
	// work goes on by then. Zero while they exist.
	CheckAt Instant `cbor:"12,keyasint,omitempty"`
}

// BudgetLevels returns the levels, in percent, that are reported.
func BudgetLevels() []int { return []int{50, 80, 100} }

// Turn begins a monthly budget again if another month has begun.
func (b *Budget) Turn(month int) {
	if b.Monthly && b.Month != month {
		b.Month, b.Charged, b.Level = month, 0, 0
	}
}

// LevelOf returns the highest level that an amount reaches, 0 for none.
func (b *Budget) LevelOf(amount Credits) int {
	reached := 0
	whole, rest := b.MaxCredits/100, b.MaxCredits%100 // So that nothing overflows.
	for _, level := range BudgetLevels() {
		if amount >= whole*Credits(level)+(rest*Credits(level)+99)/100 {
			reached = level
		}
	}
	return reached
}

// BudgetAlert is the report that a budget has reached a level.
type BudgetAlert struct {
	Key        KeyID   `cbor:"1,keyasint,omitempty"`
	User       UserID  `cbor:"2,keyasint,omitempty"`
	Level      int     `cbor:"3,keyasint"`
	Charged    Credits `cbor:"4,keyasint"` // At an extension with what running work has used up.
	MaxCredits Credits `cbor:"5,keyasint"`
	Monthly    bool    `cbor:"6,keyasint,omitempty"`
	Stopped    bool    `cbor:"7,keyasint,omitempty"` // The execution was stopped at this ceiling.
}

// Purchase is a payment for credits, as the payment provider confirmed it.
type Purchase struct {
	Org      OrgID   `cbor:"1,keyasint"`
	ID       string  `cbor:"2,keyasint"` // The provider's id of the checkout session; unique.
	Amount   Credits `cbor:"3,keyasint"`
	Paid     int64   `cbor:"4,keyasint,omitempty"` // Amount in the smallest unit of Currency.
	Currency string  `cbor:"5,keyasint,omitempty"`
	Payment  string  `cbor:"6,keyasint,omitempty"` // The provider's identifier of the payment.
	Customer string  `cbor:"7,keyasint,omitempty"` // The provider's identifier of the customer.
	At       Instant `cbor:"8,keyasint"`
}

// Order asks the payment provider for a checkout session.
type Order struct {
	Org        OrgID
	Name       string // The organization's name.
	Email      string // For the receipt.
	Amount     Credits
	SuccessURL string
	CancelURL  string
	Request    string // The same for each repeat of the request.
}

// Checkout is a purchase that was started: its page at the payment provider.
type Checkout struct {
	ID  string
	URL string
}
