package api

import (
	"strings"

	"berth/compute"
)

// Paths of the API.
const (
	root       = "/api/v2/external"
	streamRoot = "/api/v1"

	streaming = root + "/execution/streaming"
	selecting = root + "/execution/gpu_selection"
)

// need is the credential that a route requires.
type need uint8

const (
	needNothing  need = iota // Anyone.
	needCaller               // A good credential, and with it an organization.
	needOrg                  // The same, as a member of the organization in the path.
	needOperator             // The root token, or an operator's credential.
	needScraper              // The metrics token, where there is one.
	needStream               // The token of the stream, or as needCaller.
)

// route is one method of one path, with its handler and its documentation.
type route struct {
	method  string
	path    string
	tag     string // Of the specification; "" for what it does not know.
	summary string
	need    need
	role    compute.OrgRole // The least role in the organization, with needOrg.
	once    bool            // Keeps a secret: a repeat with its Idempotency-Key is refused.
	large   bool            // The body may have Limits.StartBody bytes and more time to arrive.
	bare    bool            // The body may be left out, as if it were {}.
	local   bool            // Each node answers for itself, one without a replica too.

	query   func() any // New value to read the query into; nil for none.
	body    func() any // New value to read the body into; nil for none.
	reply   func() any // What is answered; nil for what is not JSON.
	accepts []string   // Media types of answers that are not JSON.

	handle func(*request) (any, error)
	params []string // Names in the path.
}

// of returns a constructor of T.
func of[T any]() func() any { return func() any { return new(T) } }

// A group is the handlers of one part of the specification.
type group interface{ routes() []route }

// groups returns all groups of routes.
func (s *Server) groups() []group {
	executions := executions{s.core}
	return []group{
		&sessions{s.core, s.access}, &orgs{s.core}, &keys{s.core},
		&executions, &selections{executions}, &workloads{executions}, &outputs{executions},
		&billing{s.core}, &machines{s.core},
		&members{s.core}, &nodes{s.core}, &limits{s.core}, &brakes{s.core}, &raft{s.core}, &decisions{s.core},
		&probes{s.core},
	}
}

// table returns the routes of groups.
func table(groups ...group) []route {
	var all []route
	for _, g := range groups {
		all = append(all, g.routes()...)
	}
	for i := range all {
		for segment := range strings.SplitSeq(all[i].path, "/") {
			if strings.HasPrefix(segment, "{") {
				all[i].params = append(all[i].params, strings.Trim(segment, "{}"))
			}
		}
	}
	return all
}
