//nolint:lll // A field and its rules are one line.
package wire

import (
	"net/url"

	"berth/compute"
)

// HistoryQuery are the parameters of GET /billing/history.
type HistoryQuery struct {
	Limit  int             `json:"limit" default:"50" min:"1" max:"1000" doc:"Page size."`
	Offset int             `json:"offset" default:"0" min:"0" doc:"How many to leave out, from the newest."`
	Status string          `json:"status" enum:"pending,queued,starting,running,completed,failed,system_failure,aborted,cancelled"`
	Type   string          `json:"type" enum:"python,docker,compose,gpu_selection,gpu_selection_sub"`
	From   compute.Instant `json:"from" doc:"Submitted at or after, RFC 3339."`
	To     compute.Instant `json:"to" doc:"Submitted before, RFC 3339."`
	Parent string          `json:"parent" maxlen:"36" doc:"Only sub-executions of this execution."`
}

// ExecutionHistory answers /billing/history. Totals are of the organization,
// not of the page.
type ExecutionHistory struct {
	Executions        []ExecutionSummary `json:"executions" doc:"Newest first."`
	TotalExecutions   int                `json:"total_executions"`
	TotalCreditsSpent compute.Credits    `json:"total_credits_spent"`
	CountsByStatus    map[string]int     `json:"counts_by_status"`
	Limit             int                `json:"limit"`
	Offset            int                `json:"offset"`
}

// Credits answers /billing/credits.
type Credits struct {
	Available     compute.Credits  `json:"available_credits" doc:"The balance less what is held."`
	Used          compute.Credits  `json:"used_credits" doc:"Since the first of the month, UTC."`
	TotalUsed     compute.Credits  `json:"total_credits_used" doc:"Ever."`
	Remaining     compute.Credits  `json:"remaining_credits" doc:"The balance, with what is held."`
	Held          compute.Credits  `json:"held_credits" doc:"Set aside for executions that have not ended."`
	MonthlyFree   compute.Credits  `json:"monthly_free_credits"`
	Purchased     compute.Credits  `json:"purchased_credits"`
	SignupGrantAt *compute.Instant `json:"signup_grant_claimed_at"`
}

// CreditsDetails answers /billing/credits/details.
type CreditsDetails struct {
	UserID            compute.UserID  `json:"user_id"`
	Email             string          `json:"email"`
	AvailableCredits  compute.Credits `json:"available_credits" doc:"The balance less what is held."`
	UsedCredits       compute.Credits `json:"used_credits" doc:"Since the first of the month, UTC."`
	TotalCreditsUsed  compute.Credits `json:"total_credits_used" doc:"Ever."`
	CreatedAt         compute.Instant `json:"created_at"`
	LastUpdated       compute.Instant `json:"last_updated"`
	PaymentCustomerID string          `json:"payment_customer_id" doc:"Empty without a payment provider."`
}

// Checkout is the body of POST /billing/checkout.
type Checkout struct {
	Amount     compute.Credits `json:"credits_amount" required:"true" gt:"0" doc:"Credits to buy."`
	SuccessURL string          `json:"success_url" maxlen:"2048" doc:"Where the payment provider sends the browser afterwards; a page of the cluster when absent."`
	CancelURL  string          `json:"cancel_url" maxlen:"2048" doc:"Where it sends the browser when the purchase is cancelled."`
}

// Check holds the rules that tags cannot say.
func (c *Checkout) Check(f *Faults) {
	for _, field := range [][2]string{{"success_url", c.SuccessURL}, {"cancel_url", c.CancelURL}} {
		u, err := url.Parse(field[1])
		if field[1] != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			f.Value("not an http or https URL", "body", field[0])
		}
	}
}

// CheckoutSession answers POST /billing/checkout.
type CheckoutSession struct {
	URL string `json:"checkout_url" doc:"The payment provider's page."`
	ID  string `json:"session_id"`
}

// PaymentReport is the body of POST /billing/webhook, which the payment provider makes.
type PaymentReport struct{}

// LedgerQuery are the parameters of GET /billing/ledger.
type LedgerQuery struct {
	Limit  int    `json:"limit" default:"50" min:"1" max:"1000" doc:"Page size."`
	Cursor uint64 `json:"cursor" default:"0" min:"0" doc:"Lines after this number, oldest first."`
}

// Ledger answers /billing/ledger.
type Ledger struct {
	Entries    []LedgerEntry `json:"entries"`
	NextCursor *uint64       `json:"next_cursor" doc:"For the next page; null on the last one."`
}

// LedgerEntry is one line of the organization's ledger.
type LedgerEntry struct {
	Seq         uint64               `json:"seq"`
	At          compute.Instant      `json:"at"`
	Kind        compute.LedgerKind   `json:"kind"`
	Amount      compute.Credits      `json:"amount" doc:"Never negative."`
	ExecutionID *compute.ExecutionID `json:"execution_id"`
	Attempt     *uint64              `json:"attempt"`
	Note        *string              `json:"note"`
	Balance     compute.Credits      `json:"balance" doc:"After this line."`
	Held        compute.Credits      `json:"held" doc:"After this line."`
	Hash        string               `json:"hash" doc:"SHA-256 over the line before and this one."`
}

// LedgerCheck answers /billing/ledger/verify.
type LedgerCheck struct {
	Valid   bool   `json:"valid"`
	Entries uint64 `json:"entries"`
	Head    string `json:"head" doc:"Hash of the last line."`
	Detail  string `json:"detail" doc:"The first fault; empty when valid."`
}

// Grant is the body of POST /billing/grant.
type Grant struct {
	Org     string          `json:"org" required:"true" minlen:"1" maxlen:"64" doc:"Slug of the organization."`
	Credits compute.Credits `json:"credits" required:"true" gt:"0"`
	Reason  string          `json:"reason" maxlen:"255"`
}

// Check holds the rules that tags cannot say.
func (g *Grant) Check(f *Faults) { checkName(f, g.Reason, "body", "reason") }
