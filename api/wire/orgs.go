//nolint:lll // A field and its rules are one line.
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

// AdminOrg is an organization as an operator sees it.
type AdminOrg struct {
	ID        compute.OrgID   `json:"id"`
	Slug      string          `json:"slug"`
	Name      string          `json:"name"`
	Trusted   bool            `json:"trusted" doc:"Its containers may be placed on nodes that isolate them below the minimum."`
	Members   int             `json:"members"`
	CreatedAt compute.Instant `json:"created_at"`
}

// AdminOrgs lists the organizations of the cluster.
type AdminOrgs struct {
	Orgs []AdminOrg `json:"orgs"`
}

// OrgTrust is the body of PATCH /admin/orgs/{slug}.
type OrgTrust struct {
	Trusted *bool `json:"trusted" required:"true" nonnull:"true" doc:"Whether its containers may be placed on nodes that isolate them below the minimum."`
}
