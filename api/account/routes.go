package account

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package. The server tells whose a
// credential is.
func Routes(c *handler.Core, s *edge.Server) []edge.Route {
	signIn := &sessions{c, s.Stranger}
	return handler.Table(
		signIn, &signups{c, signIn}, &users{c}, &orgs{c}, &adminOrgs{c}, &members{c}, &keys{c},
		&userKeys{c, s.KeyHolder}, &limits{c}, &variables{c}, &invites{c}, &callbackSecrets{c}, &audits{c},
	)
}
