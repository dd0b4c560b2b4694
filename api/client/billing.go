package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/compute"
)

// HistoryQuery selects a page of the history. Zero values select everything,
// from the newest on, in the node's page size.
type HistoryQuery struct {
	Limit  int
	Offset int
	Status string
	Parent compute.ExecutionID
}

// History is a page of an organization's executions, newest first.
type History struct {
	Executions        []Summary       `json:"executions"`
	TotalExecutions   int             `json:"total_executions"`
	TotalCreditsSpent compute.Credits `json:"total_credits_spent"`
	CountsByStatus    map[string]int  `json:"counts_by_status"`
	Limit             int             `json:"limit"`
	Offset            int             `json:"offset"`
}

// Credits is the balance of an organization.
type Credits struct {
	Available compute.Credits `json:"available_credits"`
	Held      compute.Credits `json:"held_credits"`
	Used      compute.Credits `json:"total_credits_used"`
}

// History returns a page of the organization's executions.
func (c *Client) History(ctx context.Context, q HistoryQuery) (History, error) {
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
	if !q.Parent.IsZero() {
		query.Set("parent", q.Parent.String())
	}
	var out History
	err := c.do(ctx, call{method: http.MethodGet, path: "/billing/history", query: query, out: &out})
	return out, err
}

// Credits returns the balance of the organization.
func (c *Client) Credits(ctx context.Context) (Credits, error) {
	var out Credits
	err := c.do(ctx, call{method: http.MethodGet, path: "/billing/credits", out: &out})
	return out, err
}

// Grant gives credits to an organization. It takes the root token.
func (c *Client) Grant(ctx context.Context, org string, credits compute.Credits, reason string) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/billing/grant", body: map[string]any{
		"org": org, "credits": credits, "reason": reason,
	}})
}
