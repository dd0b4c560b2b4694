package api

import (
	"slices"

	"berth/api/account"
	"berth/api/admin"
	"berth/api/billing"
	"berth/api/edge"
	"berth/api/execution"
	"berth/api/handler"
	"berth/api/storage"
)

// routes returns the routes of all groups but the viewer's.
func routes(s *edge.Server, c *handler.Core) []edge.Route {
	return slices.Concat(account.Routes(c, s), billing.Routes(c), storage.Routes(c), admin.Routes(c),
		execution.Routes(c), handler.Table(
			&services{c}, &deployments{services{c}}, &models{deployments{services{c}}},
		))
}
