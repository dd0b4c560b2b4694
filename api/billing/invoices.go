package billing

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/statement"
	"berth/api/wire"
	"berth/compute"
)

// activities answers the grants and charges of the organization, newest first.
func (g *billing) activities(r *edge.Request) (any, error) {
	in := r.Query.(*wire.ActivitiesQuery)
	done, err := g.Scans.Take(r.Ctx, r.Caller.Actor.Org)
	if err != nil {
		return nil, err
	}
	defer done()
	out := wire.Activities{Activities: []wire.Activity{}}
	var last []*compute.LedgerEntry // The newest that the page may need, oldest first.
	for line := range r.View.Ledger(r.Caller.Actor.Org, 0) {
		if line.Kind != compute.LedgerGrant && line.Kind != compute.LedgerCharge {
			continue
		}
		out.Total++
		if last = append(last, line); len(last) >= 2*(in.Limit+in.Offset) {
			last = slices.Clone(last[len(last)-in.Limit-in.Offset:])
		}
	}
	for i := len(last) - 1 - in.Offset; i >= 0 && len(out.Activities) < in.Limit; i-- {
		out.Activities = append(out.Activities, activityOf(r, last[i]))
	}
	return out, nil
}

// activityOf returns a line of a ledger as an activity.
func activityOf(r *edge.Request, line *compute.LedgerEntry) wire.Activity {
	out := wire.Activity{
		ID: strconv.FormatUint(line.Seq, 10), CreatedAt: line.At, Type: line.Kind.String(), Amount: line.Amount,
		Description: line.Note, Status: "completed",
	}
	if line.Kind != compute.LedgerCharge {
		return out
	}
	out.Amount, out.ExecutionID = -line.Amount, &line.Execution
	if out.Description == "" {
		out.Description = "Execution " + line.Execution.String()
	}
	if e, ok := r.View.Execution(r.Caller.Actor.Org, line.Execution); ok {
		out.Profile = &e.Profile
	}
	return out
}

// months returns the statements of the organization's ledger, newest first.
func (g *billing) months(r *edge.Request) ([]statement.Month, error) {
	done, err := g.Scans.Take(r.Ctx, r.Caller.Actor.Org)
	if err != nil {
		return nil, err
	}
	defer done()
	months := statement.Months(r.View.Ledger(r.Caller.Actor.Org, 0))
	slices.Reverse(months)
	return months, nil
}

// invoices answers a page of the statements of all months, newest first.
func (g *billing) invoices(r *edge.Request) (any, error) {
	months, err := g.months(r)
	if err != nil {
		return nil, err
	}
	out := wire.Invoices{Invoices: []wire.Invoice{}, Total: len(months)}
	page, err := handler.Paged(r, months, func(m *statement.Month) string {
		return fmt.Sprintf("%019d", math.MaxInt64-m.Start.Unix())
	})
	if err != nil {
		return nil, err
	}
	for i := range page {
		out.Invoices = append(out.Invoices, invoiceOf(&page[i], r))
	}
	return out, nil
}

// invoice answers the statement of one month.
func (g *billing) invoice(r *edge.Request) (any, error) {
	months, err := g.months(r)
	if err != nil {
		return nil, err
	}
	for i := range months {
		m := &months[i]
		if invoiceID(m, r.Caller.Org) != r.Params["id"] {
			continue
		}
		if r.Query.(*wire.InvoiceQuery).Format == "pdf" {
			text, err := statement.PDF(m, statement.Heading{
				ID: invoiceID(m, r.Caller.Org), Name: r.Caller.Org.Name, Slug: r.Caller.Org.Slug,
				Draft: r.View.Now().Time().Before(m.End()),
			})
			return answer.Text{ContentType: "application/pdf", Body: text}, err
		}
		return invoiceOf(m, r), nil
	}
	return nil, edge.NotFound()
}

// invoiceID returns the id of the statement of a month among those of all
// organizations.
func invoiceID(m *statement.Month, org *compute.Org) string {
	id := org.ID.String()
	return m.ID() + "-" + id[len(id)-8:]
}

// invoiceOf returns a month of the caller's organization as it is shown.
func invoiceOf(m *statement.Month, r *edge.Request) wire.Invoice {
	org, now := r.Caller.Org, r.View.Now()
	out := wire.Invoice{
		ID: invoiceID(m, org), Month: m.ID(), CreatedAt: compute.InstantOf(m.End()), Credits: m.Charged, Status: "paid",
		InvoicePDF: edge.Root + "/billing/invoices/" + invoiceID(m, org) + "?format=pdf",
		Opening:    m.Opening, Granted: m.Granted, Closing: m.Closing, Charges: m.Charges,
		LastLine: m.Last, Hash: hex.EncodeToString(m.Hash[:]), Days: []wire.InvoiceDay{},
	}
	if now.Time().Before(m.End()) {
		out.CreatedAt, out.Status = compute.InstantOf(m.Start), "draft"
	}
	addPurchases(&out, m, r.View.Purchases(org.ID))
	for _, day := range m.Days {
		out.Days = append(out.Days, wire.InvoiceDay{
			Date: day.Date.Format(time.DateOnly), Charges: day.Charges, Credits: day.Charged,
		})
	}
	return out
}

// addPurchases sets what was paid in a month, in the currency of its newest purchase, and the
// payment of that one.
func addPurchases(out *wire.Invoice, m *statement.Month, purchases []*compute.Purchase) {
	var newest *compute.Purchase
	in := func(p *compute.Purchase) bool {
		return p.At >= compute.InstantOf(m.Start) && p.At < compute.InstantOf(m.End())
	}
	for _, p := range purchases {
		if in(p) && (newest == nil || p.At >= newest.At) {
			newest = p
		}
	}
	if newest == nil {
		return
	}
	paid := int64(0)
	for _, p := range purchases {
		if in(p) && p.Currency == newest.Currency {
			paid += p.Paid
		}
	}
	amount := float64(paid) / math.Pow10(minorDigits(newest.Currency))
	out.Amount, out.Currency, out.PaymentIntentID = &amount, wire.OrNull(newest.Currency), wire.OrNull(newest.Payment)
}

// minorDigits returns the decimal digits of a currency in the provider's amounts
// (https://docs.stripe.com/currencies).
func minorDigits(currency string) int {
	switch currency {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		return 0
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 3
	}
	return 2
}
