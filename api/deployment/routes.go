package deployment

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package.
func Routes(c *handler.Core) []edge.Route {
	base := services{c}
	return handler.Table(&base, &deployments{base}, &models{deployments{base}})
}
