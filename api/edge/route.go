package edge

import (
	"strings"

	"berth/compute"
)

// Paths of the API. Requests that a worker relays are classed by them.
const (
	Root       = "/api/v2/external"
	StreamRoot = "/api/v1"
)

// Need is the credential that a route requires.
type Need uint8

// Credentials that routes require.
const (
	NeedNothing  Need = iota // Anyone.
	NeedCaller               // A good credential, and with it an organization.
	NeedUser                 // A good credential; an organization where there is one.
	NeedOrg                  // As NeedCaller, as a member of the organization in the path.
	NeedOperator             // The root token, or an operator's credential.
	NeedScraper              // The metrics token, where there is one.
	NeedStream               // The token of the stream, or as NeedCaller.
)

// Route is one method of one path, with its handler and its documentation.
type Route struct {
	Method   string
	Path     string
	Tag      string // Tag in the specification; "" for routes that it does not have.
	Summary  string
	Need     Need
	Role     compute.OrgRole // The least role in the organization, with NeedOrg.
	Once     bool            // Keeps a secret: a repeat with its Idempotency-Key is refused.
	Large    bool            // The body may have Limits.StartBody bytes and more time to arrive.
	Report   bool            // The body may have ReportBody bytes, though no credential is needed.
	Bare     bool            // The body may be left out, as if it were {}.
	Raw      bool            // The handler reads the body itself, with Request.Raw; Body only describes it.
	Rest     bool            // The last parameter of the path is all that follows, slashes too.
	Streamed bool            // The handler reads the body as it comes, with Request.Incoming.
	Local    bool            // Each node answers for itself, one without a replica too.

	Query   func() any // New value to read the query into; nil for none.
	Body    func() any // New value to read the body into; nil for none.
	Reply   func() any // New value of the answer's type; nil if it is not JSON.
	Accepts []string   // Media types of answers that are not JSON.

	Handle func(*Request) (any, error)
	params []string // Names in the path, once the server has the route.
}

// pattern returns the path as the router wants it.
func (rt *Route) pattern() string {
	if rt.Rest {
		return strings.TrimSuffix(rt.Path, "}") + ":*}"
	}
	return rt.Path
}

// Parameters returns the names of the parameters in the path.
func (rt *Route) Parameters() []string {
	var names []string
	for segment := range strings.SplitSeq(rt.Path, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}

// Type returns a constructor of T, as the fields of a Route have them.
func Type[T any]() func() any { return func() any { return new(T) } }
