package wire

import "berth/compute"

// Org is an organization as one of its members sees it.
type Org struct {
	ID           compute.OrgID   `json:"id"`
	Slug         string          `json:"slug"`
	Name         string          `json:"name"`
	BillingEmail *string         `json:"billing_email"`
	Role         compute.OrgRole `json:"role" doc:"The caller's."`
	IsDefault    bool            `json:"is_default" doc:"Whether it is the caller's default organization."`
	CreatedAt    compute.Instant `json:"created_at"`
}
