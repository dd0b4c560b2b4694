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

// Budgets returns the budgets of the organization with a slug.
func (c *Client) Budgets(ctx context.Context, slug string) ([]wire.Budget, error) {
	return pages[wire.Budget](ctx, c, budgetsPath(slug))
}

// SetBudget gives an organization, one of its keys or one of its members a budget.
func (c *Client) SetBudget(ctx context.Context, slug string, b wire.NewBudget) (wire.Budget, error) {
	body := map[string]any{"max_credits": b.MaxCredits, "enforce": b.Enforce}
	for name, value := range map[string]string{
		"key_id": b.KeyID, "user_id": b.UserID, "period": b.Period, "callback_url": b.CallbackURL,
	} {
		if value != "" {
			body[name] = value
		}
	}
	var out wire.Budget
	err := c.Do(ctx, berth.Call{Method: http.MethodPut, Path: budgetsPath(slug), Body: body, Out: &out})
	return out, err
}

// RemoveBudget removes the budget of a key or a member, by its identifier, or that of the
// organization: "organization".
func (c *Client) RemoveBudget(ctx context.Context, slug, id string) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: budgetsPath(slug) + "/" + url.PathEscape(id)})
}

func budgetsPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/budgets" }

// Audit returns a page of an organization's audit trail, newest first: so many lines
// below a number, 0 for all.
func (c *Client) Audit(ctx context.Context, slug string, below uint64, limit int) ([]wire.AuditLine, error) {
	var out []wire.AuditLine
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/orgs/" + url.PathEscape(slug) + "/audit", Out: &out,
		Query: auditQuery("", below, limit),
	})
	return out, err
}

// AdminAudit returns a page of the audit trail of an organization or, with an empty slug,
// of the cluster.
func (c *Client) AdminAudit(ctx context.Context, slug string, below uint64, limit int) ([]wire.AuditLine, error) {
	var out []wire.AuditLine
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/admin/audit", Query: auditQuery(slug, below, limit), Out: &out,
	})
	return out, err
}

// VerifyAudit verifies the chain of a trail.
func (c *Client) VerifyAudit(ctx context.Context, slug string) (wire.AuditCheck, error) {
	query := url.Values{}
	if slug != "" {
		query.Set("org", slug)
	}
	var out wire.AuditCheck
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/audit/verify", Query: query, Out: &out})
	return out, err
}

func auditQuery(slug string, below uint64, limit int) url.Values {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if below > 0 {
		query.Set("cursor", strconv.FormatUint(below, 10))
	}
	if slug != "" {
		query.Set("org", slug)
	}
	return query
}

// Checkout starts a purchase of credits: its URL is the payment provider's page.
func (c *Client) Checkout(ctx context.Context, amount compute.Credits) (wire.CheckoutSession, error) {
	var out wire.CheckoutSession
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/billing/checkout", Out: &out, Body: map[string]any{"credits_amount": amount},
	})
	return out, err
}

// RotateSecrets gives an organization a new data key.
func (c *Client) RotateSecrets(ctx context.Context, slug string) (wire.RotatedSecrets, error) {
	var out wire.RotatedSecrets
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/admin/secrets/rotate", Out: &out, Body: wire.RotateSecrets{Org: slug},
	})
	return out, err
}

// RotateRootToken replaces the cluster's root token, and returns the new one.
func (c *Client) RotateRootToken(ctx context.Context) (wire.RotatedRootToken, error) {
	var out wire.RotatedRootToken
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/root-token/rotate", Once: true, Out: &out})
	return out, err
}

// RotateMaster has a new master key on all servers, in place of the one before.
func (c *Client) RotateMaster(ctx context.Context) (wire.RotatedMaster, error) {
	var out wire.RotatedMaster
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/secrets/rotate-master", Out: &out})
	return out, err
}
