package api

import (
	"slices"

	"berth/api/account"
	"berth/api/admin"
	"berth/api/billing"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/storage"
)

// Paths of the API.
const (
	streaming = edge.Root + "/execution/streaming"
	selecting = edge.Root + "/execution/gpu_selection"
	serving   = edge.Root + "/execution/service"
	imaging   = edge.Root + "/execution/image"
	composing = edge.Root + "/execution/compose"
)

// routes returns the routes of all groups but the viewer's.
func routes(s *edge.Server, c *handler.Core) []edge.Route {
	executions := newExecutions(c)
	return slices.Concat(account.Routes(c, s), billing.Routes(c), storage.Routes(c), admin.Routes(c), handler.Table(
		&executions, &selections{executions}, &services{executions}, &deployments{services{executions}},
		&models{deployments{services{executions}}}, &images{executions},
		&composes{executions}, &workloads{executions}, &outputs{executions},
		&logLines{executions}, &series{executions}, &callbacks{executions},
		&files{executions}, &uploads{c},
		&environments{c},
	))
}
