package api

import "berth/api/edge"

// Paths of the API.
const (
	root       = edge.Root
	streamRoot = edge.StreamRoot

	streaming = root + "/execution/streaming"
	selecting = root + "/execution/gpu_selection"
	serving   = root + "/execution/service"
	imaging   = root + "/execution/image"
	composing = root + "/execution/compose"
)

// of returns a constructor of T.
func of[T any]() func() any { return func() any { return new(T) } }

// A group is the handlers of one part of the specification.
type group interface{ routes() []edge.Route }

// groups returns all groups of routes.
func groups(s *edge.Server, c *core) []group {
	executions := executions{c}
	signIn := &sessions{c, s.Stranger}
	return []group{
		signIn, &signups{c, signIn}, &users{c}, &orgs{c}, &adminOrgs{c}, &members{c}, &keys{c}, &userKeys{c, s.KeyHolder},
		&executions, &selections{executions}, &services{executions}, &deployments{services{executions}},
		&models{deployments{services{executions}}}, &images{executions},
		&composes{executions}, &workloads{executions}, &outputs{executions},
		&logLines{executions}, &series{executions}, &callbacks{executions},
		&files{executions}, &uploads{c}, &storage{c}, &partUploads{&storage{c}},
		&billing{c}, &machines{c}, &prices{c}, &variables{c}, &invites{c}, &environments{c}, &callbackSecrets{c},
		&budgets{c}, &audits{c}, &checkouts{c}, &rotations{c},
		&joinTokens{c}, &nodes{c}, &limits{c}, &brakes{c}, &raft{c}, &decisions{c},
		&probes{c}, &viewer{c},
	}
}

// table returns the routes of groups.
func table(groups ...group) []edge.Route {
	var all []edge.Route
	for _, g := range groups {
		all = append(all, g.routes()...)
	}
	return all
}
