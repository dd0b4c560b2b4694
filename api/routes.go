package api

import (
	"slices"

	"berth/api/account"
	"berth/api/admin"
	"berth/api/billing"
	"berth/api/deployment"
	"berth/api/edge"
	"berth/api/execution"
	"berth/api/handler"
	"berth/api/storage"
)

// routes returns the routes of all groups but the viewer's.
func routes(s *edge.Server, c *handler.Core) []edge.Route {
	return slices.Concat(
		account.Routes(c, s), execution.Routes(c), deployment.Routes(c), storage.Routes(c), billing.Routes(c),
		admin.Routes(c),
	)
}
