package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/limit"
	"berth/compute"
)

// Limits of request bodies.
const (
	// InlineBody is how many bytes of a body are read before the credential is
	// checked. A request that needs no credential has no larger body, but for reports.
	// Clients without a credential can make a node hold this much for each connection.
	InlineBody = 8 << 10
	// ReportBody is the size of the largest report of a provider, which the provider
	// signs instead of using a credential.
	ReportBody = 256 << 10
	firstBody  = 1 << 10 // Bytes that are read at first.
	// bodyPiece is the number of bytes that are read first of a larger body. The
	// buffer grows with the bytes that arrive, never with what Content-Length
	// promises.
	bodyPiece = 64 << 10
	// bodyShare is the part of Limits.Bodies that one organization, on a worker
	// one credential, may use: a half.
	bodyShare = 2
	// operatorBodies is the limit of bytes for the bodies of operators'
	// requests, beside Limits.Bodies.
	operatorBodies = 8 << 20
	// reportBodies is the limit of bytes for the reports that a node holds, beside
	// Limits.Bodies, and reportShare the part of one address: a quarter.
	reportBodies = 8 << 20
	reportShare  = 4
)

// bodyLimit returns the size of the largest body that the route accepts.
func (rt *Route) bodyLimit(limits Limits) int {
	switch {
	case rt.Raw && rt.Body == nil:
		return compute.MaxChunk
	case rt.Report:
		return ReportBody
	case rt.Body == nil || rt.Need == NeedNothing:
		return InlineBody
	case rt.Large:
		return limits.StartBody
	}
	return limits.Body
}

// receive reads the request's body. More than InlineBody is read only for a
// caller whose credential is good, or for a report, within the budget of the node. Nothing is
// kept of the rest of a body that is refused.
func (s *Server) receive(ctx *fasthttp.RequestCtx, r *Request) error {
	body, length := ctx.RequestBodyStream(), ctx.Request.Header.ContentLength()
	if body == nil {
		return nil
	}
	limit := r.route.bodyLimit(s.cfg.Limits)
	if length > limit {
		return errBodyTooLarge()
	}
	if length <= InlineBody {
		whole, err := r.readBody(body, length, min(limit, InlineBody))
		if whole || err != nil {
			return err
		}
		if limit <= InlineBody {
			return errBodyTooLarge()
		}
	}
	if err := s.admitBody(r); err != nil {
		return err
	}
	if r.route.Large {
		if err := ctx.SetReadDeadline(time.Now().Add(readFactorStart * s.cfg.Limits.ReadTimeout)); err != nil {
			return err
		}
	}
	whole, err := r.readBody(body, length, limit)
	if err == nil && !whole {
		err = errBodyTooLarge()
	}
	return err
}

// readBody appends the body to r.raw until its end, and reports whether it came
// there. A chunked body has a negative length: it is read until it is longer
// than limit.
func (r *Request) readBody(body io.Reader, length, limit int) (whole bool, err error) {
	most, known := limit+1, length >= 0
	if known {
		most = length
	}
	for len(r.raw) < most {
		if len(r.raw) == cap(r.raw) {
			if err := r.growBody(most); err != nil {
				return false, err
			}
		}
		n, err := body.Read(r.raw[len(r.raw):cap(r.raw)])
		r.raw = r.raw[:len(r.raw)+n]
		ended := errors.Is(err, io.EOF)
		switch {
		case ended && known && len(r.raw) < most:
			return false, parserErrorOf(io.ErrUnexpectedEOF)
		case ended:
			return true, nil
		case err != nil:
			return false, parserErrorOf(err)
		}
	}
	return known, nil
}

// growBody makes space in r.raw for more bytes, up to most. Beyond InlineBody
// they are reserved first.
func (r *Request) growBody(most int) error {
	size := min(most, max(firstBody, 2*cap(r.raw)))
	if r.hold.Budget != nil {
		size = min(most, max(bodyPiece, size))
		// Both buffers exist while one is copied into the other.
		if err := r.hold.Reserve(cap(r.raw) + size); err != nil {
			return err
		}
	}
	larger := make([]byte, len(r.raw), size)
	copy(larger, r.raw)
	r.raw = larger
	r.hold.Shrink(size)
	return nil
}

// admitBody authenticates the caller before a large body is read, where the route
// needs a credential, and sets whose share of the budget the body uses. The rights are checked again when
// the body is there.
func (s *Server) admitBody(r *Request) error {
	if r.route.Need == NeedNothing {
		s.ownBody(r, r.customer())
		return nil
	}
	if s.cfg.Relay != nil && !r.route.Local {
		if err := s.relayAdmission(r); err != nil {
			return err
		}
		s.ownBody(r, bearerName(r.bearer))
		return nil
	}
	early := *r
	early.Renew()
	defer early.release()
	err := s.access.admit(&early)
	r.extra = early.extra
	if err != nil {
		return err
	}
	s.ownBody(r, early.Caller.Actor.Org.String())
	return nil
}

// bearerName names the owner of a credential that this node cannot check.
func bearerName(bearer string) string {
	sum := sha256.Sum256([]byte(bearer))
	return hex.EncodeToString(sum[:])
}

// ownBody sets the budget and the owner of the request's body.
func (s *Server) ownBody(r *Request, owner string) {
	r.hold = limit.Hold{Budget: s.bodies, Owner: owner}
	switch r.route.Need {
	case NeedOperator:
		r.hold.Budget = s.operatorBodies
	case NeedNothing:
		r.hold.Budget = s.reportBodies
	case NeedCaller, NeedUser, NeedOrg, NeedScraper, NeedStream:
	}
}

// holdRelayed reserves the body of a request that a worker has relayed.
func (s *Server) holdRelayed(r *Request) error {
	if len(r.raw) <= InlineBody || r.hold.Budget != nil {
		return nil
	}
	owner := r.Caller.Actor.Org.String()
	if r.route.Need == NeedNothing {
		owner = r.customer()
	}
	s.ownBody(r, owner)
	return r.hold.Reserve(len(r.raw))
}

// errBodyTooLarge refuses a body over the limit of its route.
func errBodyTooLarge() error { return compute.Errorf(compute.CodeTooLarge, "The body is too large.") }
