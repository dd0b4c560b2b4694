package execution

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Routes returns the routes of all groups of the package.
func Routes(c *handler.Core) []edge.Route {
	all := newExecutions(c)
	return handler.Table(
		&all, &selections{all}, &images{all}, &composes{all}, &workloads{all}, &outputs{all},
		&logLines{c}, &series{all}, &callbacks{all}, &files{all}, &uploads{c}, &environments{c},
	)
}
