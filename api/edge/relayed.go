package edge

import (
	"context"
	"io"
	"slices"
	"strings"

	"berth/api/edge/answer"
	"berth/compute"
)

// Relayed is a request as a node without a replica has parsed it and hands it
// to a server: nothing of it is parsed a second time.
type Relayed struct {
	Method string            `cbor:"1,keyasint"`
	Path   string            `cbor:"2,keyasint"` // Path of the route, with its parameters' names.
	Params map[string]string `cbor:"3,keyasint,omitempty"`
	Args   map[string]string `cbor:"4,keyasint,omitempty"` // Arguments of the query.
	Body   []byte            `cbor:"5,keyasint,omitempty"`

	ID   string       `cbor:"6,keyasint"`  // X-Request-Id.
	Op   compute.UUID `cbor:"7,keyasint"`  // Names the request over all tries of the node that hands it on.
	IP   string       `cbor:"8,keyasint"`  // Address of the client.
	Base string       `cbor:"9,keyasint"`  // Base of URLs in the answer.
	Type string       `cbor:"10,keyasint"` // Content-Type.

	Encoding    string `cbor:"11,keyasint,omitempty"`
	Bearer      string `cbor:"12,keyasint,omitempty"`
	OrgSlug     string `cbor:"13,keyasint,omitempty"`
	Idempotency string `cbor:"14,keyasint,omitempty"`
	LastEventID string `cbor:"15,keyasint,omitempty"`
	IfNoneMatch string `cbor:"16,keyasint,omitempty"`
	Accept      string `cbor:"17,keyasint,omitempty"`
	Range       string `cbor:"18,keyasint,omitempty"`
	IfMatch     string `cbor:"19,keyasint,omitempty"`
	IfRange     string `cbor:"20,keyasint,omitempty"`
	Signature   string `cbor:"21,keyasint,omitempty"`
}

// RelayedHead begins the answer to a Relayed.
type RelayedHead struct {
	Status int         `cbor:"1,keyasint"`
	Header [][2]string `cbor:"2,keyasint,omitempty"` // Name and value.
	Stream bool        `cbor:"3,keyasint,omitempty"` // The body comes while things happen.
}

// RelayedAnswer is the answer to a Relayed. The reader closes Body.
type RelayedAnswer struct {
	RelayedHead

	Body io.ReadCloser
}

// Events reports whether the answer is a stream of events, which can be taken
// up behind one that came.
func (a *RelayedAnswer) Events() bool {
	return a.Stream && slices.ContainsFunc(a.Header, func(h [2]string) bool {
		return strings.EqualFold(h[0], "Content-Type") && strings.HasPrefix(h[1], answer.EventStream)
	})
}

// Relay forwards the requests of a node without a replica.
type Relay interface {
	// Relay forwards in to a server, and to another one if that dies before it
	// answers. A stream continues at another server after the last event. The
	// body ends with ctx.
	Relay(ctx context.Context, in Relayed) (*RelayedAnswer, error)
	// Status returns the values of the X-Berth-* headers of this node.
	Status() QueryMeta
}

// QueryMeta is a node's applied index and its contact with the leader.
type QueryMeta struct {
	Index       uint64 // Index of the newest state that it knows.
	KnownLeader bool
	LastContact int64 // With the leader, milliseconds ago.
}

// relayed returns the request as it travels.
func (r *Request) relayed(op compute.UUID) Relayed {
	return Relayed{
		Method: r.route.Method, Path: r.route.Path, Params: r.Params, Args: r.args, Body: r.raw,
		ID: r.id, Op: op, IP: r.IP, Base: r.Base, Type: r.mediaType, Encoding: r.encoding,
		Bearer: r.bearer, OrgSlug: r.orgSlug, Idempotency: r.idempotency,
		LastEventID: r.LastEventID, IfNoneMatch: r.IfNoneMatch, Accept: r.Accept, Range: r.byteRange,
		IfMatch: r.IfMatch, IfRange: r.ifRange, Signature: r.Signature,
	}
}

// requestOf returns the request that came as in to another node.
func (s *Server) requestOf(in Relayed) (*Request, error) {
	r := &Request{
		begun: s.cfg.Stopwatch(), id: s.requestID(in.ID), Params: in.Params, args: in.Args, raw: in.Body,
		seed: in.Op, IP: in.IP, Base: in.Base, mediaType: in.Type, encoding: in.Encoding,
		bearer: in.Bearer, orgSlug: in.OrgSlug, idempotency: in.Idempotency,
		LastEventID: in.LastEventID, IfNoneMatch: in.IfNoneMatch, Accept: in.Accept, byteRange: in.Range,
		IfMatch: in.IfMatch, ifRange: in.IfRange, Signature: in.Signature,
	}
	if r.Params == nil {
		r.Params = map[string]string{}
	}
	if r.args == nil {
		r.args = map[string]string{}
	}
	for i := range s.routes {
		if rt := &s.routes[i]; rt.Method == in.Method && rt.Path == in.Path && !rt.Local {
			r.route = rt
			return r, nil
		}
	}
	return r, NotFound()
}
