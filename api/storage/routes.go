package storage

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package.
func Routes(c *handler.Core) []edge.Route {
	return handler.Table(&storage{c}, &partUploads{&storage{c}})
}
