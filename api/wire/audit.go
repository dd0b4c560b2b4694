//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// AuditQuery are the parameters of GET /orgs/{slug}/audit.
type AuditQuery struct {
	Limit  int    `json:"limit" default:"100" min:"1" max:"1000" doc:"Page size."`
	Offset int    `json:"offset" default:"0" min:"0" max:"10000" beyond:"go on with cursor, the X-Next-Cursor of the page before" doc:"How many to leave out, from the newest. Beyond that, use cursor."`
	Cursor uint64 `json:"cursor" default:"0" min:"0" doc:"Only lines below this number: X-Next-Cursor of the page before."`
}

// AdminAuditQuery are the parameters of GET /admin/audit.
type AdminAuditQuery struct {
	Org    string `json:"org" maxlen:"64" doc:"Slug of an organization; the cluster's own trail when absent."`
	Limit  int    `json:"limit" default:"100" min:"1" max:"1000" doc:"Page size."`
	Cursor uint64 `json:"cursor" default:"0" min:"0" doc:"Only lines below this number: X-Next-Cursor of the page before."`
}

// AuditOrgQuery is the parameter of GET /admin/audit/verify.
type AuditOrgQuery struct {
	Org string `json:"org" maxlen:"64" doc:"Slug of an organization; the cluster's own trail when absent."`
}

// AuditLine is one line of an audit trail.
type AuditLine struct {
	Seq       uint64          `json:"seq"`
	At        compute.Instant `json:"at"`
	Actor     string          `json:"actor" doc:"Email of the user, root for the root token, or system."`
	UserID    *compute.UserID `json:"user_id"`
	KeyID     *compute.KeyID  `json:"key_id" doc:"The API key that was used."`
	Action    string          `json:"action" doc:"Such as key.create."`
	Target    *string         `json:"target"`
	Detail    *string         `json:"detail"`
	IP        *string         `json:"ip" doc:"Address of the client."`
	RequestID *string         `json:"request_id"`
	Index     uint64          `json:"index" doc:"Index of the log entry that made the change."`
	Hash      string          `json:"hash" doc:"SHA-256 over the line before and this one."`
}

// AuditCheck answers GET /admin/audit/verify.
type AuditCheck struct {
	Valid   bool   `json:"valid"`
	Lines   uint64 `json:"lines" doc:"All that were written."`
	Trimmed uint64 `json:"trimmed" doc:"The oldest ones, which are no longer kept."`
	Head    string `json:"head" doc:"Hash of the last line."`
	Detail  string `json:"detail" doc:"The first fault; empty when valid."`
}
