package billing

import (
	"context"
	"encoding/hex"
	"iter"
	"net/http"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// billing serves Billing: credits, history and the ledger.
type billing struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *billing) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/history", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The executions of the organization, newest first.",
			Query:   edge.Type[wire.HistoryQuery](), Reply: edge.Type[wire.ExecutionHistory](), Handle: g.history,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/credits", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The organization's credits: granted, charged, held and available.",
			Reply:   edge.Type[wire.Credits](), Handle: g.credits,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/credits/details", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The organization's credits, with the organization.",
			Reply:   edge.Type[wire.CreditsDetails](), Handle: g.creditsDetails,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/ledger", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The organization's ledger, oldest line first.",
			Query:   edge.Type[wire.LedgerQuery](), Reply: edge.Type[wire.Ledger](), Handle: g.ledger,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/ledger/verify", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "Recompute and verify the hash chain of the organization's ledger.",
			Reply:   edge.Type[wire.LedgerCheck](), Handle: g.verifyLedger,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/usage", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "Sum up the use of the organization in some time by user, key, tag, profile or day.",
			Accepts: []string{"text/csv"}, // With ?format=.
			Query:   edge.Type[wire.UsageQuery](), Reply: edge.Type[wire.UsageReport](), Handle: g.usage,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/activities", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The organization's grants and charges, newest first.",
			Query:   edge.Type[wire.ActivitiesQuery](), Reply: edge.Type[wire.Activities](), Handle: g.activities,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/invoices", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "A statement for each month in which the organization's ledger has lines, newest first.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[wire.Invoices](), Handle: g.invoices,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/billing/invoices/{id}", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "The statement of one month as JSON or PDF.",
			Accepts: []string{"application/pdf"}, // With ?format=.
			Query:   edge.Type[wire.InvoiceQuery](), Reply: edge.Type[wire.Invoice](), Handle: g.invoice,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/billing/grant", Tag: "Billing", Need: edge.NeedOperator,
			Summary: "Grant credits to an organization.",
			Body:    edge.Type[wire.Grant](), Reply: edge.Type[wire.Message](), Handle: g.grant,
		},
	}
}

// history answers a page of the organization's executions.
func (g *billing) history(r *edge.Request) (any, error) {
	in := r.Query.(*wire.HistoryQuery)
	filter, ok := filterOf(in)
	total, spent, byStatus := r.View.Totals(r.Caller.Actor.Org)
	out := wire.ExecutionHistory{
		Executions: []wire.ExecutionSummary{}, TotalExecutions: total, TotalCreditsSpent: spent,
		CountsByStatus: make(map[string]int), Limit: in.Limit, Offset: in.Offset,
	}
	for status, n := range byStatus {
		if n > 0 {
			out.CountsByStatus[compute.Status(status).String()] = n
		}
	}
	if !ok {
		return out, nil
	}
	list, err := answer.ListIn(out, "executions", func(ctx context.Context) iter.Seq2[any, error] {
		return g.historyRows(ctx, r, filter, in.Limit)
	})
	// Nothing may match the filter, and pages of old executions are in archives.
	list.Scan = func(ctx context.Context) (func(), error) { return g.Scans.Take(ctx, r.Caller.Actor.Org) }
	return list, err
}

// historyRows yields the summaries of the first executions of the caller's
// organization that pass filter.
func (g *billing) historyRows(
	ctx context.Context, r *edge.Request, filter fsm.HistoryFilter, limit int,
) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		n := 0
		for c, err := range r.View.WholeHistory(r.Caller.Actor.Org, filter, g.OpenArchive(ctx)) {
			if err != nil {
				yield(nil, err)
				return
			}
			view := r.View
			if c.Archived {
				view = view.With(c)
			}
			if n++; !yield(handler.SummaryOf(view, c.Execution), nil) || n == limit {
				return
			}
		}
	}
}

// filterOf returns the filter of a query; not ok if nothing can match it.
// Decoding has checked the enumerations.
func filterOf(in *wire.HistoryQuery) (filter fsm.HistoryFilter, ok bool) {
	filter = fsm.HistoryFilter{From: in.From, To: in.To, Skip: in.Offset}
	if in.Status != "" {
		filter.Status = new(compute.Status)
		if err := filter.Status.UnmarshalText([]byte(in.Status)); err != nil {
			return filter, false
		}
	}
	if in.Type != "" {
		filter.Kind = new(compute.Kind)
		if err := filter.Kind.UnmarshalText([]byte(in.Type)); err != nil {
			return filter, false
		}
	}
	if in.Parent != "" {
		parent, err := compute.ParseExecutionID(in.Parent)
		if err != nil {
			return filter, false
		}
		filter.Parent = &parent
	}
	return filter, true
}

// credits answers the organization's credits: granted, charged, held,
// available.
func (g *billing) credits(r *edge.Request) (any, error) {
	a := r.View.Account(r.Caller.Actor.Org)
	out := wire.Credits{
		Available: a.Available(), Used: usedThisMonth(a, r.View.Now()), TotalUsed: a.Charged,
		Remaining: a.Balance, Held: a.Held,
	}
	for _, p := range r.View.Purchases(r.Caller.Actor.Org) {
		out.Purchased += p.Amount
	}
	for first := range r.View.Ledger(r.Caller.Actor.Org, 0) {
		if first.Kind == compute.LedgerGrant && first.At == r.Caller.Org.CreatedAt {
			out.SignupGrantAt = wire.AtOrNull(first.At)
		}
		break
	}
	return out, nil
}

// usedThisMonth returns the charges since the first of the month.
func usedThisMonth(a *compute.Account, now compute.Instant) compute.Credits {
	t := now.Time()
	if a.Month != t.Year()*12+int(t.Month())-1 {
		return 0
	}
	return a.InMonth
}

// creditsDetails answers the organization's credits, with the organization.
func (g *billing) creditsDetails(r *edge.Request) (any, error) {
	a := r.View.Account(r.Caller.Actor.Org)
	updated := a.UpdatedAt
	if updated.IsZero() {
		updated = r.Caller.Org.CreatedAt
	}
	var newest compute.Purchase
	for _, p := range r.View.Purchases(r.Caller.Actor.Org) {
		if p.Customer != "" && p.At >= newest.At {
			newest = *p
		}
	}
	return wire.CreditsDetails{
		PaymentCustomerID: newest.Customer,
		UserID:            r.Caller.User.ID, Email: r.Caller.User.Email,
		AvailableCredits: a.Available(), UsedCredits: usedThisMonth(a, r.View.Now()),
		TotalCreditsUsed: a.Charged, CreatedAt: r.Caller.Org.CreatedAt, LastUpdated: updated,
	}, nil
}

// ledger answers a page of the organization's ledger.
func (g *billing) ledger(r *edge.Request) (any, error) {
	in := r.Query.(*wire.LedgerQuery)
	out := wire.Ledger{Entries: []wire.LedgerEntry{}}
	for e := range r.View.Ledger(r.Caller.Actor.Org, in.Cursor) {
		if len(out.Entries) == in.Limit {
			out.NextCursor = &out.Entries[in.Limit-1].Seq
			break
		}
		out.Entries = append(out.Entries, ledgerEntryOf(e))
	}
	return out, nil
}

// ledgerEntryOf returns a line of a ledger as its organization sees it.
func ledgerEntryOf(e *compute.LedgerEntry) wire.LedgerEntry {
	out := wire.LedgerEntry{
		Seq: e.Seq, At: e.At, Kind: e.Kind, Amount: e.Amount, Note: wire.OrNull(e.Note),
		Balance: e.Balance, Held: e.Held, Hash: hex.EncodeToString(e.Hash[:]),
	}
	if !e.Execution.IsZero() {
		out.ExecutionID = &e.Execution
	}
	if e.Epoch > 0 {
		out.Attempt = &e.Epoch
	}
	return out
}

// verifyLedger recomputes the hash chain of the organization's ledger.
func (g *billing) verifyLedger(r *edge.Request) (any, error) {
	done, err := g.Scans.Take(r.Ctx, r.Caller.Actor.Org)
	if err != nil {
		return nil, err
	}
	defer done()
	a := r.View.Account(r.Caller.Actor.Org)
	out := wire.LedgerCheck{Valid: true, Entries: a.Seq, Head: hex.EncodeToString(a.Head[:])}
	if err := r.View.VerifyLedger(r.Caller.Actor.Org); err != nil {
		out.Valid, out.Detail = false, err.Error()
	}
	return out, nil
}

// grant gives credits to an organization.
func (g *billing) grant(r *edge.Request) (any, error) {
	in := r.Body.(*wire.Grant)
	org, err := handler.FindOrg(r.View, in.Org)
	if err != nil {
		return nil, err
	}
	_, err = g.Propose(r, command.Grant{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID, Amount: in.Credits, Note: in.Reason,
	})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: in.Credits.String() + " credits are granted to " + org.Slug + "."}, nil
}
