package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
)

// Limits of connections to replicas.
const (
	idleEach    = 128 // Idle connections that are kept to each replica,
	idleAll     = 1024
	idleTimeout = 30 * time.Second
	dialTimeout = 10 * time.Second
	headerBytes = 256 << 10 // Limit of an answer's header.
	retryAfter  = 2 * time.Second
)

// ErrManyConnections is the error of a Dial to a node to which this one has as many
// connections as it may.
var ErrManyConnections = errors.New("too many connections to the node of the replica")

// Dial connects to the port that an attempt serves on a node. The connection outlives
// ctx.
type Dial func(ctx context.Context, to Replica) (net.Conn, error)

// Replica is an attempt that serves a port.
type Replica struct {
	Execution compute.ExecutionID
	Epoch     uint64
	Node      compute.NodeID
}

// Router has replicas of services answer requests. Its methods may be called
// concurrently.
type Router struct {
	self      compute.NodeID
	transport *http.Transport
	now       func() time.Time

	mu sync.Mutex

	busy     map[compute.ExecutionID]int  // Requests that this node has under way, by replica,
	switched map[compute.ExecutionID]int  // and those of them whose connection has another protocol now.
	drained  map[compute.ExecutionID]bool // Replicas that get no more of them,
	oldest   []compute.ExecutionID        // in this order.
	next     int                          // Rotates the order of equal replicas.

	loads map[compute.ExecutionID]*load
	since time.Time // Since when deployments without loads have had no requests.

	gates   map[compute.ExecutionID]*gate // To deployments that are asked.
	servers int                           // Others that are up.

	known knownReplicas

	failed map[uint64]*failedRequest // By requestKey.
	seed   maphash.Seed              // For requestKey.

	queues  Queues
	crowded chan struct{}
}

// New returns the router of a node.
func New(self compute.NodeID, dial Dial, now func() time.Time) *Router {
	r := &Router{
		self: self, now: now, since: now(),
		busy: make(map[compute.ExecutionID]int), switched: make(map[compute.ExecutionID]int),
		drained: make(map[compute.ExecutionID]bool), loads: make(map[compute.ExecutionID]*load),
		gates: make(map[compute.ExecutionID]*gate), crowded: make(chan struct{}, 1),
		failed: make(map[uint64]*failedRequest), seed: maphash.MakeSeed(),
	}
	r.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := parse(address)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := dial(ctx, to)
			if err != nil {
				return nil, &unreachable{err}
			}
			return conn, nil
		},
		DisableCompression: true, MaxIdleConns: idleAll, MaxIdleConnsPerHost: idleEach, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: headerBytes,
	}
	return r
}

// Close ends the idle connections.
func (r *Router) Close() error {
	r.transport.CloseIdleConnections()
	return nil
}

// unreachable is the error of a connection that could not be made.
type unreachable struct{ error }

func (e *unreachable) Unwrap() error { return e.error }

// errNotHTTP stands for an error of net/http that quotes what a program sent.
var errNotHTTP = errors.New("the answer is not HTTP")

// withoutBytes returns err, or errNotHTTP if its text may have what a program sent: that is
// in no log.
func withoutBytes(err error) error {
	_, ours := errors.AsType[*compute.Error](err)
	if err != nil && !ours && !isUnsent(err) && strings.Contains(err.Error(), `"`) {
		return errNotHTTP
	}
	return err
}

// manyConnections returns the error of a request that no replica got because of
// ErrManyConnections: there are replicas that are ready.
func manyConnections() error {
	return compute.Errorf(compute.CodeUnavailable, "This node has too many requests under way at another one.").
		Named("too_many_requests").Retry(time.Second)
}

// RoundTrip has a ready replica of a service answer a request.
func (r *Router) RoundTrip(view *fsm.View, service *compute.Execution, req *http.Request) (*http.Response, error) {
	replicas := r.ready(view, service)
	if len(replicas) == 0 {
		return nil, noneReady(service)
	}
	body, crowded := req.Body, false
	for _, to := range r.order(replicas) {
		sent := false // Something of the request, which may have taken effect.
		try := req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			WroteHeaders: func() { sent = true },
		}))
		try.URL.Host = address(to)
		if body != nil {
			try.Body = io.NopCloser(body) // The caller closes it, after another try perhaps.
		}
		done, ok := r.begin(to)
		if !ok {
			continue
		}
		answer, err := r.transport.RoundTrip(try)
		if err == nil {
			answer.Body = closing(answer.Body, r.countSwitched(to, answer, done))
			return answer, nil
		}
		done()
		if _, refused := errors.AsType[*unreachable](err); !refused || sent {
			return nil, compute.Errorf(compute.CodeUnavailable, "The replica did not answer.").
				Named("replica_failed").Retry(retryAfter).Because(withoutBytes(err))
		}
		crowded = crowded || errors.Is(err, ErrManyConnections)
		if req.Context().Err() != nil {
			break
		}
	}
	if crowded {
		return nil, manyConnections()
	}
	return nil, noneReady(service)
}

func noneReady(service *compute.Execution) error {
	return compute.Errorf(compute.CodeUnavailable, "No replica of %d is ready.", service.Service.Replicas).
		Named("no_ready_replica").Retry(retryAfter)
}

// knownReplicas has the ready replicas of services in the newest state that was read. A
// request reads them several times, and most requests read the same state.
type knownReplicas struct {
	index    uint64 // The state has it.
	replicas map[compute.ExecutionID][]Replica
}

// ready returns the replicas of a service that are ready, as the function ready does. The
// caller does not change them.
func (r *Router) ready(view *fsm.View, service *compute.Execution) []Replica {
	index := view.Index()
	r.mu.Lock()
	replicas, known := r.known.replicas[service.ID]
	if known && r.known.index == index {
		r.mu.Unlock()
		return replicas
	}
	r.mu.Unlock()
	replicas = ready(view, service)
	r.mu.Lock()
	defer r.mu.Unlock()
	if index > r.known.index || r.known.replicas == nil {
		r.known = knownReplicas{index, make(map[compute.ExecutionID][]Replica)}
	}
	if index == r.known.index {
		r.known.replicas[service.ID] = replicas
	}
	return replicas
}

// ready returns the replicas of a service that are ready, on nodes that are up. One that
// is being preempted is among them only if there is no other.
func ready(view *fsm.View, service *compute.Execution) (out []Replica) {
	var leaving []Replica
	for _, slot := range service.Service.Slots {
		e, ok := view.AnyExecution(slot.Replica)
		if !ok || !slot.Live || !e.Ready || e.Stop != compute.StopNone {
			continue
		}
		attempts := view.Attempts(e.ID)
		if len(attempts) == 0 {
			continue
		}
		newest := attempts[len(attempts)-1]
		if n, ok := view.Node(newest.Node); !ok || newest.Ended || n.State != compute.NodeUp {
			continue
		}
		to := Replica{e.ID, newest.Epoch, newest.Node}
		if newest.PreemptAt.IsZero() {
			out = append(out, to)
		} else {
			leaving = append(leaving, to)
		}
	}
	if len(out) == 0 {
		return leaving
	}
	return out
}

// order returns replicas in the order in which they are tried: the one with the
// fewest requests of this node first, of equal ones this node's own, and the others
// in turn.
func (r *Router) order(replicas []Replica) []Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.next % len(replicas)
	r.next++
	out := append(slices.Clone(replicas[at:]), replicas[:at]...)
	away := func(p Replica) int {
		if p.Node == r.self {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(r.busy[a.Execution], r.busy[b.Execution]), cmp.Compare(away(a), away(b)))
	})
	return out
}

// begin counts a request to a replica, unless it gets no more of them. The caller calls
// done once at its end.
func (r *Router) begin(to Replica) (done func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drained[to.Execution] {
		return nil, false
	}
	r.busy[to.Execution]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.busy[to.Execution]--; r.busy[to.Execution] <= 0 {
			delete(r.busy, to.Execution)
		}
	}), true
}

// address returns a replica as the host of a URL, by which connections are kept.
func address(to Replica) string {
	return fmt.Sprintf("%s.%d.%s:80", to.Execution, to.Epoch, to.Node)
}

// parse returns the replica in an address.
func parse(address string) (to Replica, err error) {
	parts := strings.Split(strings.TrimSuffix(address, ":80"), ".")
	if len(parts) != 3 {
		return to, fmt.Errorf("dial %q: no replica", address)
	}
	if to.Execution, err = compute.ParseExecutionID(parts[0]); err != nil {
		return to, err
	}
	if to.Epoch, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return to, err
	}
	to.Node, err = compute.ParseNodeID(parts[2])
	return to, err
}

// closing calls done when the body of an answer is closed. One that can be written
// to, because the protocol has changed, still can.
func closing(body io.ReadCloser, done func()) io.ReadCloser {
	if w, ok := body.(io.ReadWriteCloser); ok {
		return &closingWriter{closingBody{body, done}, w}
	}
	return &closingBody{body, done}
}

type closingBody struct {
	io.ReadCloser
	done func()
}

func (b *closingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, withoutBytes(err)
}

func (b *closingBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

type closingWriter struct {
	closingBody
	io.Writer
}
