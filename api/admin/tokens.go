package admin

import (
	"net/http"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// joinTokens serves join tokens, to operators.
type joinTokens struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *joinTokens) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/join-tokens", Need: edge.NeedOperator, Once: true,
			Summary: "Create a join token for nodes. It is shown this once.",
			Body:    edge.Type[wire.NewJoinToken](), Reply: edge.Type[wire.JoinToken](), Handle: g.createJoinToken,
		},
	}
}

// createJoinToken makes a token with which nodes join. Its text is in this
// answer and nowhere else.
func (g *joinTokens) createJoinToken(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewJoinToken)
	role := compute.RoleServer
	if in.Role == compute.RoleWorker.String() {
		role = compute.RoleWorker
	}
	text, record, err := g.Config.NewJoinToken(role, time.Duration(in.TTL)*time.Second, in.Uses)
	if err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, command.CreateJoinToken{Op: g.Op(r), Actor: r.Caller.Actor, Token: record})
	if err != nil {
		return nil, err
	}
	if result.Repeat && !knowsJoinToken(r.View, record.ID) {
		return nil, handler.ErrSecretGone("join token", "")
	}
	return wire.JoinToken{
		Token: text, ID: record.ID, Role: record.Role, Uses: record.Uses, ExpiresAt: record.ExpiresAt,
	}, nil
}

// knowsJoinToken reports whether the state has a join token.
func knowsJoinToken(view *fsm.View, id string) bool {
	for t := range view.JoinTokens() {
		if t.ID == id {
			return true
		}
	}
	return false
}
