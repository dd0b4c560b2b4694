package account

import (
	"context"
	"encoding/hex"
	"iter"
	"net/http"
	"strconv"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// audits serves audit trails.
type audits struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *audits) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/orgs/{slug}/audit", Tag: "Organizations", Need: edge.NeedOrg,
			Role:    compute.RoleFor(compute.ActReadAudit),
			Summary: "List the changes in the organization, with who made them, from where and when, newest first.",
			Query:   edge.Type[wire.AuditQuery](), Reply: edge.Type[[]wire.AuditLine](), Handle: g.org,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/audit", Need: edge.NeedOperator,
			Summary: "The audit trail of the cluster, or of an organization, newest first.",
			Query:   edge.Type[wire.AdminAuditQuery](), Reply: edge.Type[[]wire.AuditLine](), Handle: g.cluster,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/audit/verify", Need: edge.NeedOperator,
			Summary: "Verify the hash chain of an audit trail.",
			Query:   edge.Type[wire.AuditOrgQuery](), Reply: edge.Type[wire.AuditCheck](), Handle: g.verify,
		},
	}
}

// org answers a page of the trail of the caller's organization.
func (g *audits) org(r *edge.Request) (any, error) {
	in := r.Query.(*wire.AuditQuery)
	return page(r, r.Caller.Actor.Org, in.Cursor, in.Offset, in.Limit), nil
}

// cluster answers a page of any trail.
func (g *audits) cluster(r *edge.Request) (any, error) {
	in := r.Query.(*wire.AdminAuditQuery)
	org, err := trailOf(r.View, in.Org)
	if err != nil {
		return nil, err
	}
	return page(r, org, in.Cursor, 0, in.Limit), nil
}

// trailOf returns the organization whose trail a slug names, zero for the cluster's.
func trailOf(view *fsm.View, slug string) (compute.OrgID, error) {
	if slug == "" {
		return compute.OrgID{}, nil
	}
	org, err := handler.FindOrg(view, slug)
	if err != nil {
		return compute.OrgID{}, err
	}
	return org.ID, nil
}

// page answers a page of a trail.
func page(r *edge.Request, org compute.OrgID, cursor uint64, offset, limit int) any {
	view := r.View
	var lines []*compute.AuditRecord
	for line := range view.Audit(org, cursor) {
		if offset > 0 {
			offset--
			continue
		}
		if len(lines) == limit {
			r.SetHeader("X-Next-Cursor", strconv.FormatUint(lines[limit-1].Seq, 10))
			break
		}
		lines = append(lines, line)
	}
	return answer.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for _, line := range lines {
				if !yield(AuditLine(view, line), nil) {
					return
				}
			}
		}
	}}
}

// AuditLine returns a line of a trail as clients see it.
func AuditLine(view *fsm.View, line *compute.AuditRecord) wire.AuditLine {
	out := wire.AuditLine{
		Seq: line.Seq, At: line.At, Actor: "system", Action: line.Action, Target: wire.OrNull(line.Target),
		Detail: wire.OrNull(line.Detail), IP: wire.OrNull(line.From), RequestID: wire.OrNull(line.Request),
		Index: line.Index, Hash: hex.EncodeToString(line.Hash[:]),
	}
	switch {
	case line.Root:
		out.Actor = "root"
	case !line.User.IsZero():
		out.UserID, out.Actor = &line.User, line.User.String()
		if u, ok := view.User(line.User); ok {
			out.Actor = u.Email
		}
	}
	if !line.Key.IsZero() {
		out.KeyID = &line.Key
	}
	return out
}

// verify recomputes the chain of a trail.
func (g *audits) verify(r *edge.Request) (any, error) {
	org, err := trailOf(r.View, r.Query.(*wire.AuditOrgQuery).Org)
	if err != nil {
		return nil, err
	}
	done, err := g.Scans.Take(r.Ctx, org)
	if err != nil {
		return nil, err
	}
	defer done()
	trail := r.View.Trail(org)
	out := wire.AuditCheck{
		Valid: true, Lines: trail.Lines, Trimmed: trail.Trimmed, Head: hex.EncodeToString(trail.Head[:]),
	}
	if err := r.View.VerifyAudit(org); err != nil {
		out.Valid, out.Detail = false, err.Error()
	}
	return out, nil
}
