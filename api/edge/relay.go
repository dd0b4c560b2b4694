package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/edge/limit"
	"berth/compute"
)

// Limits of relayed requests.
const (
	// maxRelays is the number of relayed requests at once, without streams.
	maxRelays          = 512
	maxRelayedStreams  = 512 // Streams and held answers beside them,
	maxOperatorRelays  = 64  // and requests of operators.
	relayedStreamShare = 4   // The part of the streams that one credential may have: a quarter.
	// relayTimeout bounds the wait for an answer, beside what the client itself
	// asks to wait: time for one server to be found dead and another to answer.
	relayTimeout = 30 * time.Second
	maxRelayed   = 64 << 20 // Bytes of an answer that is not a stream.
)

// refused is the answer of a server that refuses a body.
type refused struct {
	answer *RelayedAnswer
	body   []byte
}

func (e *refused) Error() string { return fmt.Sprintf("a server answered %d", e.answer.Status) }

// relayAdmission has a server check the caller before the body of the request
// is read. It asks for something that needs the same kind of credential and
// changes nothing, because servers of other versions know that too.
func (s *Server) relayAdmission(r *Request) error {
	in := Relayed{
		Method: fasthttp.MethodGet, Path: Root + "/user/status", Op: s.NewUUID(), ID: r.id, IP: r.IP, Base: r.Base,
		Bearer: r.bearer, OrgSlug: r.orgSlug,
	}
	if r.route.Need == NeedOperator {
		in.Path = Root + "/admin/brake"
	}
	release, err := s.takeRelay(&in)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.life.hard, relayTimeout)
	defer cancel()
	answer, err := s.cfg.Relay.Relay(ctx, in)
	if err != nil {
		return err
	}
	body, err := answer.read(&limit.Hold{}, limit.FreeAnswer)
	if err == nil && answer.Status != fasthttp.StatusOK {
		err = &refused{answer, body}
	}
	return err
}

// failBody answers a request whose body was not read.
func (s *Server) failBody(ctx *fasthttp.RequestCtx, r *Request, err error) {
	if e, ok := errors.AsType[*refused](err); ok {
		e.answer.write(ctx)
		ctx.Response.SetBodyRaw(e.body)
		s.observe(r, r.route.Method, e.answer.Status, s.took(r))
		return
	}
	s.fail(ctx, r, err)
}

// RelayClass is a kind of relayed requests, which does not use up the places of
// another one.
type RelayClass uint8

// Classes of relayed requests.
const (
	RelayRequest  RelayClass = iota // Soon answered.
	RelayStream                     // A stream or a held answer.
	RelayOperator                   // Sent to /admin/.
)

// Class returns the class of a relayed request.
func (in *Relayed) Class() RelayClass {
	switch {
	case strings.HasPrefix(in.Path, Root+"/admin/"):
		return RelayOperator
	case strings.HasPrefix(in.Path, StreamRoot+"/stream/"), in.Args["wait"] != "":
		return RelayStream
	}
	return RelayRequest
}

// Limit returns how many requests of the class a worker relays at once.
func (c RelayClass) Limit() int {
	return [...]int{RelayRequest: maxRelays, RelayStream: maxRelayedStreams, RelayOperator: maxOperatorRelays}[c]
}

// relays counts relayed requests by class.
type relays [RelayOperator + 1]*limit.Budget

func newRelays() (all relays) {
	for class := range all {
		most := RelayClass(class).Limit()
		share := most
		if RelayClass(class) == RelayStream {
			share /= relayedStreamShare
		}
		all[class] = limit.NewBudget(most, share)
	}
	return all
}

// takeRelay counts one more relayed request. The caller calls release at its
// end.
func (s *Server) takeRelay(in *Relayed) (release func(), err error) {
	pool, owner := s.relays[in.Class()], in.IP // A stream's token names nobody.
	if in.Bearer != "" {
		owner = bearerName(in.Bearer)
	}
	if !pool.Take(owner, 1) {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"This node hands on too many requests.").Named("too_many_streams").Retry(time.Second)
	}
	return func() { pool.Give(owner, 1) }, nil
}

// read returns the body of an answer that is not a stream, within hold, and closes
// it.
func (a *RelayedAnswer) read(hold *limit.Hold, limit int) ([]byte, error) {
	body, err := hold.ReadAll(a.Body, limit)
	return body, errors.Join(err, a.Body.Close())
}

// relay forwards the request to a server and passes its answer on.
func (s *Server) relay(ctx *fasthttp.RequestCtx, r *Request) {
	in := r.relayed(s.NewUUID())
	release, err := s.takeRelay(&in)
	if err != nil {
		s.fail(ctx, r, err)
		return
	}
	within, cancel := context.WithCancel(r.life.hard)
	end := func() {
		cancel()
		release()
	}
	patience := time.AfterFunc(relayTimeout+waitOf(r), cancel)
	if in.Class() == RelayStream {
		r.conn = ctx.Conn()
	}
	stop := r.Watch(cancel)
	answer, err := s.cfg.Relay.Relay(within, in)
	in.Body = nil
	if err == nil && answer.Stream && ctx.IsHead() {
		defer answer.Body.Close() // Nothing of it is read.
		defer end()
		s.relayHead(ctx, r, answer)
		return
	}
	if err == nil && answer.Stream && patience.Stop() {
		ctx.SetConnectionClose() // The watch reads from it.
		stopped := context.AfterFunc(r.life.soft, cancel)
		s.relayStream(ctx, r, answer, func() {
			stopped()
			end()
		})
		return
	}
	defer end()
	defer patience.Stop()
	defer func() {
		if stop(); r.sent {
			ctx.SetConnectionClose()
		}
	}()
	var body []byte
	hold := s.answerHold(r)
	defer func() { hold.Shrink(0) }() // It is empty once the answer has it.
	if err == nil {
		body, err = answer.read(&hold, maxRelayed)
	}
	if err != nil {
		s.fail(ctx, r, err)
		return
	}
	s.relayHead(ctx, r, answer)
	r.large = cap(body)
	sendHeld(ctx, &hold, body)
}

// relayHead passes on the head of an answer, with what this node says to browsers.
func (s *Server) relayHead(ctx *fasthttp.RequestCtx, r *Request, answer *RelayedAnswer) {
	answer.write(ctx)
	s.secure(&ctx.Response.Header)
	s.share(ctx)
	s.observe(r, r.route.Method, answer.Status, s.took(r))
}

// write sets status and headers of the answer.
func (a *RelayedAnswer) write(ctx *fasthttp.RequestCtx) {
	ctx.SetStatusCode(a.Status)
	for _, h := range a.Header {
		ctx.Response.Header.Set(h[0], h[1])
	}
}

// relayStream passes a stream on as it comes.
func (s *Server) relayStream(ctx *fasthttp.RequestCtx, r *Request, answer *RelayedAnswer, end func()) {
	s.relayHead(ctx, r, answer)
	conn := ctx.Conn()
	if err := ctx.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)); err != nil {
		r.Log(s.log).Debug("connection error", "err", err)
	}
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer end()
		defer answer.Body.Close()
		connection.CopyStream(w, answer.Body, conn)
	})
}

// Relayed answers a request that another node has parsed. begin is given the
// head of the answer and returns the writer for the body. Each write is passed
// on at once. conn is the connection below that writer; its deadline for
// writing is moved. Requests are answered while Serve lasts.
func (s *Server) Relayed(
	ctx context.Context, in Relayed, conn net.Conn, begin func(RelayedHead) (io.Writer, error),
) error {
	life := s.life.Load()
	if life == nil || life.soft.Err() != nil {
		return compute.Errorf(compute.CodeUnavailable, "This node is not serving.").Retry(time.Second)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life.hard, cancel)() //nolint:contextcheck // Either of the two ends it.
	soft, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(life.soft, stop)() //nolint:contextcheck // As there.

	var fast fasthttp.RequestCtx
	fast.Init2(conn, parserLog{s.log}, false)
	fast.Request.Header.SetMethod(in.Method)
	s.respondTo(in, lifetime{soft: soft, hard: ctx}, &fast) //nolint:contextcheck // lifetime has it.
	return passOn(&fast.Response, begin)
}

// respondTo answers in. A panic is answered too, because otherwise the next
// server would be asked and panic as well.
func (s *Server) respondTo(in Relayed, life lifetime, fast *fasthttp.RequestCtx) {
	r, err := s.requestOf(in)
	defer func() { r.hold.Shrink(0) }()
	defer func() {
		if cause := recover(); cause != nil {
			s.fail(fast, r, s.panicked(fast, cause))
		}
	}()
	if err != nil {
		s.fail(fast, r, err)
		return
	}
	r.handedOn = true
	s.respond(life, fast, r)
}

// ownHeaders are those that each connection has of its own.
func ownHeaders() []string {
	return []string{
		fasthttp.HeaderContentLength, fasthttp.HeaderTransferEncoding, fasthttp.HeaderConnection, fasthttp.HeaderDate,
	}
}

// passOn writes a response to the writer that begin returns.
func passOn(response *fasthttp.Response, begin func(RelayedHead) (io.Writer, error)) error {
	_, held := response.BodyStream().(*heldBody)
	head := RelayedHead{Status: response.StatusCode(), Stream: response.IsBodyStream() && !held}
	for name, value := range response.Header.All() {
		if !slices.Contains(ownHeaders(), string(name)) {
			head.Header = append(head.Header, [2]string{string(name), string(value)})
		}
	}
	w, err := begin(head)
	switch {
	case err != nil:
	case response.IsBodyStream():
		_, err = io.Copy(w, response.BodyStream())
	default:
		_, err = w.Write(response.Body())
	}
	if response.IsBodyStream() {
		err = errors.Join(err, response.CloseBodyStream())
	}
	return err
}
