package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// HistoryQuery selects a page of the history. Zero values select everything,
// from the newest on, in the node's page size.
type HistoryQuery struct {
	Limit  int
	Offset int
	Status string
	Type   string // The kind, such as python.
	From   compute.Instant
	Parent compute.ExecutionID
}

// History returns a page of the organization's executions.
func (c *Client) History(ctx context.Context, q HistoryQuery) (wire.ExecutionHistory, error) {
	query := url.Values{}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Offset > 0 {
		query.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Status != "" {
		query.Set("status", q.Status)
	}
	if q.Type != "" {
		query.Set("type", q.Type)
	}
	if !q.From.IsZero() {
		query.Set("from", q.From.String())
	}
	if !q.Parent.IsZero() {
		query.Set("parent", q.Parent.String())
	}
	var out wire.ExecutionHistory
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/history", Query: query, Out: &out})
	return out, err
}

// Credits returns the balance of the organization.
func (c *Client) Credits(ctx context.Context) (wire.Credits, error) {
	var out wire.Credits
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/credits", Out: &out})
	return out, err
}

// Ledger returns a page of the organization's ledger: so many lines behind a
// number, oldest first.
func (c *Client) Ledger(ctx context.Context, cursor uint64, limit int) (wire.Ledger, error) {
	query := url.Values{"cursor": {strconv.FormatUint(cursor, 10)}, "limit": {strconv.Itoa(limit)}}
	var out wire.Ledger
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/ledger", Query: query, Out: &out})
	return out, err
}

// Grant gives credits to an organization. It takes the root token.
func (c *Client) Grant(ctx context.Context, org string, credits compute.Credits, reason string) error {
	return c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/billing/grant", Body: wire.Grant{
		Org: org, Credits: credits, Reason: reason,
	}})
}

// UsageQuery selects the executions of a usage report and how they are grouped. Zero
// values select this month by user.
type UsageQuery struct {
	GroupBy  string // user, key, tag, profile or day.
	From, To compute.Instant
}

// values returns q as the API has it.
func (q UsageQuery) values() url.Values {
	out := url.Values{}
	if q.GroupBy != "" {
		out.Set("group_by", q.GroupBy)
	}
	if !q.From.IsZero() {
		out.Set("from", q.From.String())
	}
	if !q.To.IsZero() {
		out.Set("to", q.To.String())
	}
	return out
}

// Usage returns the use of the organization, by group.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (wire.UsageReport, error) {
	var out wire.UsageReport
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/usage", Query: q.values(), Out: &out})
	return out, err
}

// UsageCSV returns the use of the organization as comma-separated values.
func (c *Client) UsageCSV(ctx context.Context, q UsageQuery) ([]byte, error) {
	query := q.values()
	query.Set("format", "csv")
	var out []byte
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/usage", Query: query, Raw: &out})
	return out, err
}

// Activities returns a page of the organization's grants and charges, newest first.
func (c *Client) Activities(ctx context.Context, offset, limit int) (wire.Activities, error) {
	query := url.Values{"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(limit)}}
	var out wire.Activities
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/billing/activities", Query: query, Out: &out})
	return out, err
}

// Invoices returns the monthly statements of the organization, newest first.
func (c *Client) Invoices(ctx context.Context) (wire.Invoices, error) {
	all, err := pagesOf(ctx, c, "/billing/invoices", func(page *wire.Invoices) []wire.Invoice { return page.Invoices })
	if err != nil {
		return wire.Invoices{}, err
	}
	return wire.Invoices{Invoices: append([]wire.Invoice{}, all...), Total: len(all)}, nil
}

// InvoicePDF returns the statement with an identifier as PDF.
func (c *Client) InvoicePDF(ctx context.Context, id string) ([]byte, error) {
	var out []byte
	path := "/billing/invoices/" + url.PathEscape(id)
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: path, Query: url.Values{"format": {"pdf"}}, Raw: &out})
	return out, err
}
