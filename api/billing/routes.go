package billing

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package.
func Routes(c *handler.Core) []edge.Route {
	return handler.Table(&billing{c}, &machines{c}, &prices{c}, &budgets{c}, &checkouts{c})
}
