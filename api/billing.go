package api

import (
	"context"
	"encoding/hex"
	"iter"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// billing serves Billing: credits, history and the ledger.
type billing struct {
	*core
}

// routes returns the routes of the group.
func (g *billing) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/billing/history", tag: "Billing", need: needCaller,
			summary: "The executions of the organization, newest first.",
			query:   of[wire.HistoryQuery](), reply: of[wire.ExecutionHistory](), handle: g.history,
		},
		{
			method: http.MethodGet, path: root + "/billing/credits", tag: "Billing", need: needCaller,
			summary: "The organization's credits: granted, charged, held and available.",
			reply:   of[wire.Credits](), handle: g.credits,
		},
		{
			method: http.MethodGet, path: root + "/billing/credits/details", tag: "Billing", need: needCaller,
			summary: "The organization's credits, with the organization.",
			reply:   of[wire.CreditsDetails](), handle: g.creditsDetails,
		},
		{
			method: http.MethodGet, path: root + "/billing/ledger", tag: "Billing", need: needCaller,
			summary: "The organization's ledger, oldest line first.",
			query:   of[wire.LedgerQuery](), reply: of[wire.Ledger](), handle: g.ledger,
		},
		{
			method: http.MethodGet, path: root + "/billing/ledger/verify", tag: "Billing", need: needCaller,
			summary: "Recompute and verify the hash chain of the organization's ledger.",
			reply:   of[wire.LedgerCheck](), handle: g.verifyLedger,
		},
		{
			method: http.MethodPost, path: root + "/billing/grant", tag: "Billing", need: needOperator,
			summary: "Grant credits to an organization.",
			body:    of[wire.Grant](), reply: of[wire.Message](), handle: g.grant,
		},
	}
}

// history answers a page of the organization's executions.
func (g *billing) history(r *request) (any, error) {
	in := r.query.(*wire.HistoryQuery)
	filter, ok := filterOf(in)
	total, spent, byStatus := r.view.Totals(r.caller.actor.Org)
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
	return listIn(out, "executions", func(ctx context.Context) iter.Seq2[any, error] {
		return g.historyRows(ctx, r, filter, in.Limit)
	})
}

// historyRows yields the summaries of the first executions of the caller's
// organization that pass filter.
func (g *billing) historyRows(
	ctx context.Context, r *request, filter fsm.HistoryFilter, limit int,
) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		n := 0
		for c, err := range r.view.WholeHistory(r.caller.actor.Org, filter, g.openArchive(ctx)) {
			if err != nil {
				yield(nil, err)
				return
			}
			view := r.view
			if c.Archived {
				view = view.With(c)
			}
			if n++; !yield(summaryOf(view, c.Execution), nil) || n == limit {
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
func (g *billing) credits(r *request) (any, error) {
	a := r.view.Account(r.caller.actor.Org)
	out := wire.Credits{
		Available: a.Available(), Used: usedThisMonth(a, r.view.Now()), TotalUsed: a.Charged,
		Remaining: a.Balance, Held: a.Held,
	}
	for first := range r.view.Ledger(r.caller.actor.Org, 0) {
		if first.Kind == compute.LedgerGrant && first.At == r.caller.org.CreatedAt {
			out.SignupGrantAt = atOrNull(first.At)
		}
		break
	}
	return out, nil
}

// usedThisMonth returns what was charged since the first of the month.
func usedThisMonth(a *compute.Account, now compute.Instant) compute.Credits {
	t := now.Time()
	if a.Month != t.Year()*12+int(t.Month())-1 {
		return 0
	}
	return a.InMonth
}

// creditsDetails answers the organization's credits, with the organization.
func (g *billing) creditsDetails(r *request) (any, error) {
	a := r.view.Account(r.caller.actor.Org)
	updated := a.UpdatedAt
	if updated.IsZero() {
		updated = r.caller.org.CreatedAt
	}
	return wire.CreditsDetails{
		UserID: r.caller.user.ID, Email: r.caller.user.Email,
		AvailableCredits: a.Available(), UsedCredits: usedThisMonth(a, r.view.Now()),
		TotalCreditsUsed: a.Charged, CreatedAt: r.caller.org.CreatedAt, LastUpdated: updated,
	}, nil
}

// ledger answers a page of the organization's ledger.
func (g *billing) ledger(r *request) (any, error) {
	in := r.query.(*wire.LedgerQuery)
	out := wire.Ledger{Entries: []wire.LedgerEntry{}}
	for e := range r.view.Ledger(r.caller.actor.Org, in.Cursor) {
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
		Seq: e.Seq, At: e.At, Kind: e.Kind, Amount: e.Amount, Note: orNull(e.Note),
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
func (g *billing) verifyLedger(r *request) (any, error) {
	a := r.view.Account(r.caller.actor.Org)
	out := wire.LedgerCheck{Valid: true, Entries: a.Seq, Head: hex.EncodeToString(a.Head[:])}
	if err := r.view.VerifyLedger(r.caller.actor.Org); err != nil {
		out.Valid, out.Detail = false, err.Error()
	}
	return out, nil
}

// grant gives credits to an organization.
func (g *billing) grant(r *request) (any, error) {
	in := r.body.(*wire.Grant)
	org, err := findOrg(r.view, in.Org)
	if err != nil {
		return nil, err
	}
	_, err = g.propose(r, fsm.Grant{
		Op: g.op(r), Actor: r.caller.actor, Org: org.ID, Amount: in.Credits, Note: in.Reason,
	})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: in.Credits.String() + " credits are granted to " + org.Slug + "."}, nil
}
