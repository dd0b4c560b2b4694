//nolint:lll // A field and its rules are one line.
package wire

import (
	"net/mail"
	"strings"

	"berth/compute"
)

// NewOrg is the body of POST /orgs.
type NewOrg struct {
	Name string `json:"name" required:"true" minlen:"1" maxlen:"255"`
	Slug string `json:"slug" minlen:"2" maxlen:"39" pattern:"^[a-z0-9](-?[a-z0-9]){1,38}$" doc:"Made from the name when absent."`
}

// Check holds the rules that tags cannot say.
func (o *NewOrg) Check(f *Faults) {
	if o.Name = checkOrgName(f, o.Name); o.Slug != "" || o.Name == "" {
		return
	}
	if o.Slug = slugOf(o.Name); o.Slug == "" {
		f.Value("no slug can be made from this name: give one", "body", "slug")
	}
}

// OrgChange is the body of PATCH /orgs/{slug}. Absent fields keep their value.
type OrgChange struct {
	Name         string `json:"name" maxlen:"255"`
	Slug         string `json:"slug" minlen:"2" maxlen:"39" pattern:"^[a-z0-9](-?[a-z0-9]){1,38}$" doc:"Owners change it. The old one is free from then on."`
	BillingEmail string `json:"billing_email" maxlen:"320"`
}

// Check holds the rules that tags cannot say.
func (o *OrgChange) Check(f *Faults) {
	if o.Name = checkOrgName(f, o.Name); o.Name == "" && o.Slug == "" && o.BillingEmail == "" {
		f.Value("nothing to change: give name, slug or billing_email", "body")
	}
	if o.BillingEmail != "" {
		o.BillingEmail = checkEmail(f, o.BillingEmail, "billing_email")
	}
}

// checkOrgName returns a name without space around it.
func checkOrgName(f *Faults, name string) string {
	checkName(f, name, "body", "name")
	return strings.TrimSpace(name)
}

// slugOf returns a slug made from a name, "" if it has too few letters and digits.
func slugOf(name string) string {
	const most = 39
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	slug := strings.Join(words, "-")
	slug = strings.TrimRight(slug[:min(len(slug), most)], "-")
	if len(slug) < 2 {
		return ""
	}
	return slug
}

// checkEmail returns an e-mail address in lower case.
func checkEmail(f *Faults, text, field string) string {
	address, err := mail.ParseAddress(text)
	if err != nil || address.Address != text || hasUnprintable(text) {
		f.Value("not a valid email address", "body", field)
	}
	return strings.ToLower(text)
}

// NewInvite is the body of POST /orgs/{slug}/invites.
type NewInvite struct {
	Email string `json:"email" required:"true" minlen:"3" maxlen:"320"`
	Role  string `json:"role" default:"\"member\"" enum:"owner,admin,member" doc:"Only owners invite owners."`
}

// Check holds the rules that tags cannot say.
func (i *NewInvite) Check(f *Faults) {
	if i.Email != "" {
		i.Email = checkEmail(f, i.Email, "email")
	}
}

// Invite is an invite to an organization.
type Invite struct {
	ID        compute.InviteID `json:"id"`
	OrgSlug   string           `json:"org_slug"`
	OrgName   string           `json:"org_name"`
	Email     string           `json:"email"`
	Role      compute.OrgRole  `json:"role"`
	Status    string           `json:"status" doc:"pending, accepted, declined or expired."`
	InvitedBy *string          `json:"invited_by" doc:"E-mail address; null for an operator with the root token."`
	CreatedAt compute.Instant  `json:"created_at"`
	ExpiresAt compute.Instant  `json:"expires_at"`
}

// MintedInvite answers POST /orgs/{slug}/invites.
type MintedInvite struct {
	Invite

	Token string `json:"token" doc:"For the invited person; shown this once."`
}
