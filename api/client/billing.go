package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/api/wire"
	"berth/compute"
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
	err := c.do(ctx, call{method: http.MethodGet, path: "/billing/history", query: query, out: &out})
	return out, err
}

// Credits returns the balance of the organization.
func (c *Client) Credits(ctx context.Context) (wire.Credits, error) {
	var out wire.Credits
	err := c.do(ctx, call{method: http.MethodGet, path: "/billing/credits", out: &out})
	return out, err
}

// Ledger returns a page of the organization's ledger: so many lines behind a
// number, oldest first.
func (c *Client) Ledger(ctx context.Context, cursor uint64, limit int) (wire.Ledger, error) {
	query := url.Values{"cursor": {strconv.FormatUint(cursor, 10)}, "limit": {strconv.Itoa(limit)}}
	var out wire.Ledger
	err := c.do(ctx, call{method: http.MethodGet, path: "/billing/ledger", query: query, out: &out})
	return out, err
}

// Grant gives credits to an organization. It takes the root token.
func (c *Client) Grant(ctx context.Context, org string, credits compute.Credits, reason string) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/billing/grant", body: wire.Grant{
		Org: org, Credits: credits, Reason: reason,
	}})
}
