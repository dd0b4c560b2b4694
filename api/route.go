package api

import (
	"strings"

	"berth/compute"
)

// Paths of the API. Requests that a worker relays are classed by them.
const (
	basePath   = "/api/v2/external"
	streamPath = "/api/v1"
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
	params []string // Names in the path, once the server has the route.
}

// parameters returns the names of the parameters in the path.
func (rt *route) parameters() []string {
	var names []string
	for segment := range strings.SplitSeq(rt.path, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}
