//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// UsageQuery are the parameters of GET /billing/usage.
type UsageQuery struct {
	GroupBy string          `json:"group_by" default:"\"user\"" enum:"user,key,tag,profile,day,model" doc:"Property that rows are grouped by. An execution with several tags counts in the row of each."`
	From    compute.Instant `json:"from" doc:"Submitted at or after, RFC 3339. Absent: the first of the month, UTC."`
	To      compute.Instant `json:"to" doc:"Submitted before, RFC 3339. Absent: now."`
	Format  string          `json:"format" default:"\"json\"" enum:"json,csv" doc:"Lines of csv by user or key end with the id."`
}

// Check holds the rules that tags cannot say.
func (q *UsageQuery) Check(f *Faults) {
	if !q.From.IsZero() && !q.To.IsZero() && q.To < q.From {
		f.Value("to is before from", "query", "to")
	}
}

// UsageReport answers GET /billing/usage.
type UsageReport struct {
	GroupBy string          `json:"group_by"`
	From    compute.Instant `json:"from"`
	To      compute.Instant `json:"to"`
	Rows    []UsageRow      `json:"rows" doc:"By credits, most first; days in their order."`
	Total   UsageRow        `json:"total" doc:"Sum of all executions, each once, and of all tokens."`
}

// UsageRow is one group of a UsageReport.
type UsageRow struct {
	Group      string          `json:"group" doc:"E-mail address, name of the key, tag, profile, day or model; empty for work without; serverless for the tokens of published models where they have no other row."`
	ID         *string         `json:"id" doc:"Id of the user or key."`
	Executions int             `json:"executions" doc:"Live ones too. Parents of GPU selections and services do not count, their parts do."`
	Seconds    float64         `json:"seconds" doc:"Wall time of the code of executions that have ended."`
	GPUSeconds float64         `json:"gpu_seconds" doc:"The same, times the GPUs or their fractions."`
	Credits    compute.Credits `json:"credits" doc:"Charged."`

	PromptTokens     int64 `json:"prompt_tokens" doc:"Tokens of published models that have a price, by the time of the charge."`
	CompletionTokens int64 `json:"completion_tokens"`
}

// ActivitiesQuery are the parameters of GET /billing/activities.
type ActivitiesQuery struct {
	Limit  int `json:"limit" default:"50" min:"1" max:"1000" doc:"Page size."`
	Offset int `json:"offset" default:"0" min:"0" max:"1000000" doc:"How many to leave out, from the newest."`
}

// Activities answers GET /billing/activities.
type Activities struct {
	Activities []Activity `json:"activities" doc:"Newest first."`
	Total      int        `json:"total_activities"`
}

// Activity is a grant or a charge.
type Activity struct {
	ID          string               `json:"activity_id" doc:"The number of the line in the ledger."`
	CreatedAt   compute.Instant      `json:"created_at"`
	Type        string               `json:"type" doc:"grant or charge."`
	Amount      compute.Credits      `json:"amount" doc:"Negative for a charge."`
	Description string               `json:"description"`
	Status      string               `json:"status" doc:"completed: what the ledger has is done."`
	Profile     *string              `json:"hardware_profile" doc:"Hardware profile of a charge, while its execution is not archived."`
	ExecutionID *compute.ExecutionID `json:"execution_id"`
}

// Invoices answers GET /billing/invoices.
type Invoices struct {
	Invoices []Invoice `json:"invoices" doc:"A month each, newest first."`
	Total    int       `json:"total_invoices"`
}

// Invoice is the statement of one month, UTC, from the ledger.
type Invoice struct {
	ID              string          `json:"id" doc:"The month and the end of the organization's identifier, such as 2026-11-9d1f0a2b."`
	Month           string          `json:"month" doc:"Such as 2026-11, UTC."`
	CreatedAt       compute.Instant `json:"created_at" doc:"When the month ended; its beginning while it has not."`
	Amount          *float64        `json:"amount" doc:"Paid in the month at the payment provider; null without a purchase."`
	Currency        *string         `json:"currency" doc:"Its currency, such as eur; null without a purchase."`
	Credits         compute.Credits `json:"credits" doc:"Charged in the month."`
	Status          string          `json:"status" doc:"draft: the month has not ended; paid: it was charged to the balance."`
	InvoicePDF      string          `json:"invoice_pdf" doc:"Path of the same as PDF."`
	ReceiptURL      *string         `json:"receipt_url" doc:"Null: the payment provider sends receipts itself."`
	PaymentIntentID *string         `json:"payment_intent_id" doc:"The newest of the month at the payment provider; null without a purchase."`
	Opening         compute.Credits `json:"opening_balance"`
	Granted         compute.Credits `json:"granted"`
	Closing         compute.Credits `json:"closing_balance"`
	Charges         int             `json:"charges" doc:"How many lines of the ledger."`
	LastLine        uint64          `json:"last_line" doc:"Number of the month's last line in the ledger."`
	Hash            string          `json:"hash" doc:"SHA-256 of that line."`
	Days            []InvoiceDay    `json:"days" doc:"Those with charges."`
}

// InvoiceDay is the sum of charges on one day, UTC.
type InvoiceDay struct {
	Date    string          `json:"date"`
	Charges int             `json:"charges"`
	Credits compute.Credits `json:"credits"`
}

// InvoiceQuery are the parameters of GET /billing/invoices/{id}.
type InvoiceQuery struct {
	Format string `json:"format" default:"\"json\"" enum:"json,pdf"`
}
