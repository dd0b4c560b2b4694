package api

import (
	"berth/api/edge"
	"berth/api/handler"
)

// Paths of the API.
const (
	streaming = edge.Root + "/execution/streaming"
	selecting = edge.Root + "/execution/gpu_selection"
	serving   = edge.Root + "/execution/service"
	imaging   = edge.Root + "/execution/image"
	composing = edge.Root + "/execution/compose"
)

// groups returns all groups of routes that are handled in views of the state.
func groups(s *edge.Server, c *handler.Core) []handler.Group {
	executions := newExecutions(c)
	signIn := &sessions{c, s.Stranger}
	return []handler.Group{
		signIn, &signups{c, signIn}, &users{c}, &orgs{c}, &adminOrgs{c}, &members{c}, &keys{c}, &userKeys{c, s.KeyHolder},
		&executions, &selections{executions}, &services{executions}, &deployments{services{executions}},
		&models{deployments{services{executions}}}, &images{executions},
		&composes{executions}, &workloads{executions}, &outputs{executions},
		&logLines{executions}, &series{executions}, &callbacks{executions},
		&files{executions}, &uploads{c}, &storage{c}, &partUploads{&storage{c}},
		&billing{c}, &machines{c}, &prices{c}, &variables{c}, &invites{c}, &environments{c}, &callbackSecrets{c},
		&budgets{c}, &audits{c}, &checkouts{c}, &rotations{c},
		&joinTokens{c}, &nodes{c}, &limits{c}, &brakes{c}, &raft{c}, &decisions{c},
		&probes{c},
	}
}
