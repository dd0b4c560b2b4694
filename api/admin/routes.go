package admin

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package.
func Routes(c *handler.Core) []edge.Route {
	return handler.Table(
		&rotations{c}, &joinTokens{c}, &nodes{c}, &brakes{c}, &raft{c}, &decisions{c}, &probes{c},
	)
}
