package router

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"slices"

	"berth/compute"
	"berth/fsm"
)

// Requests to models.
const (
	boundNum, boundDen = 5, 4 // A replica has at most 5/4 of its share before others are preferred.
	peekBytes          = 512  // Read at first, to see whether an answer begins.
)

// Ready reports whether a replica of a deployment answers requests.
func (r *Router) Ready(view *fsm.View, deployment *compute.Execution) bool {
	return len(r.ready(view, deployment)) > 0
}

// Infer has a ready replica of a deployment answer a request, whose body is given
// beside it. Requests with the same prefix go to the same replica while it is not much
// busier than others; 0 is no prefix. A model changes nothing by being asked, so until the
// first byte of an answer a replica that fails costs another try elsewhere. Replicas that
// got nothing of the request are not counted. Those that failed with it are, in failed, over
// all calls for a request: there are at most compute.MaxReplicaFailures of them, and fewer if
// replicas were lost with the same body before.
func (r *Router) Infer( //nolint:gocognit // One replica after the other.
	view *fsm.View, deployment *compute.Execution, req *http.Request, body []byte, prefix uint64, failed *int,
) (*http.Response, error) {
	replicas := r.ready(view, deployment)
	if len(replicas) == 0 {
		return nil, noneReady(deployment)
	}
	before := r.riskOf(view, deployment, body)
	replicas = before.allowed(replicas)
	switch {
	case before.most == 0:
		return nil, compute.Errorf(compute.CodeUnavailable,
			"Replicas have failed while they had this request, and it is kept from others for a while. "+
				"The engine may not be able to answer it.").Named(compute.DetailReplicaLost).Retry(before.wait)
	case len(replicas) == 0: // Another one may become ready while the node's loss is not known yet.
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The node of all ready replicas broke the connections of this request, and may be gone.").
			Named("replica_failed").Retry(retryAfter)
	}
	left := min(before.most, compute.MaxReplicaFailures-*failed) // Replicas that may fail with it.
	var last error
	crowded := false
	order := r.orderByPrefix(replicas, prefix)
	for i, to := range order {
		answer, err := r.try(req, to, body)
		if err == nil {
			r.judge(deployment, body, to, answer.StatusCode, before.known || *failed > 0)
			if i == len(order)-1 || answer.StatusCode < http.StatusInternalServerError {
				return answer, nil
			}
			if isFailure(answer.StatusCode) {
				*failed++
				left--
			}
			if left <= 0 {
				return answer, nil
			}
			answer.Body.Close()
			continue
		}
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		last = err
		crowded = crowded || errors.Is(err, ErrManyConnections)
		if !isUnsent(err) {
			r.noteFailed(deployment, body, failedReplica{Replica: to, broken: true})
			*failed++
			if left--; left <= 0 {
				break
			}
		}
	}
	if crowded && isUnsent(last) {
		return nil, manyConnections()
	}
	return nil, compute.Errorf(compute.CodeUnavailable, "No replica answered.").
		Named("replica_failed").Retry(retryAfter).Because(withoutBytes(last))
}

// judge remembers a request that a replica answered by an error, and forgets one that it
// answered, if that is known. An engine that is busy has done neither.
func (r *Router) judge(deployment *compute.Execution, body []byte, by Replica, status int, known bool) {
	switch {
	case isFailure(status):
		r.noteFailed(deployment, body, failedReplica{Replica: by})
	case known && status < http.StatusInternalServerError:
		r.forgetFailed(deployment, body)
	}
}

// isFailure reports whether an answer counts as a failure with the request: engines that
// end because of one may answer it by 500 first. By 503 an engine says that it is busy.
func isFailure(status int) bool {
	return status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable
}

// isUnsent reports whether a replica got nothing of a request that failed. The transport
// itself repeats a request that it could not write to an old connection.
func isUnsent(err error) bool {
	_, refused := errors.AsType[*unreachable](err)
	return refused || errors.Is(err, errDrained)
}

// errDrained is that a replica gets no more requests.
var errDrained = errors.New("the replica is about to be stopped")

// try asks one replica, and returns its answer once the first byte of it is there.
func (r *Router) try(req *http.Request, to Replica, body []byte) (*http.Response, error) {
	try := req.Clone(req.Context())
	try.URL.Host = address(to)
	var sent prompt
	switch {
	case len(body) > keptPrompt:
		sent.data = body
		try.Body, try.ContentLength, try.GetBody = &promptReader{left: body}, int64(len(body)), sent.again
	case body != nil: // The transport writes header and body together if it knows the reader.
		try.Body, try.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		try.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	done, ok := r.begin(to)
	if !ok {
		return nil, errDrained
	}
	answer, err := r.transport.RoundTrip(try)
	if err != nil {
		done()
		return nil, err
	}
	peeked := bufio.NewReaderSize(answer.Body, peekBytes)
	if _, err := peeked.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		answer.Body.Close()
		done()
		return nil, err
	}
	sent.drop()
	answer.Body = &closingBody{struct {
		io.Reader
		io.Closer
	}{peeked, answer.Body}, done}
	return answer, nil
}

// orderByPrefix returns replicas in the order in which they are tried. Rendezvous
// hashing ranks them for a prefix, and those above their bounded share of this node's
// requests come last. Without a prefix it is the order of services.
func (r *Router) orderByPrefix(replicas []Replica, prefix uint64) []Replica {
	if prefix == 0 {
		return r.order(replicas)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 1
	for _, p := range replicas {
		total += r.busy[p.Execution]
	}
	most := (total*boundNum + boundDen*len(replicas) - 1) / (boundDen * len(replicas))
	type ranked struct {
		Replica

		over int
		rank uint64
	}
	list := make([]ranked, len(replicas))
	for i, p := range replicas {
		list[i] = ranked{Replica: p, rank: rank(p.Execution, prefix)}
		if busy := r.busy[p.Execution]; busy+1 > most {
			list[i].over = busy
		}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.over, b.over), cmp.Compare(b.rank, a.rank))
	})
	out := make([]Replica, len(list))
	for i, p := range list {
		out[i] = p.Replica
	}
	return out
}

// rank returns how well a replica suits a prefix.
func rank(id compute.ExecutionID, prefix uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(append([]byte(nil), id.UUID[:]...), prefix))
	x := h.Sum64()
	x ^= x >> 33 // The last bytes barely reach the high bits of FNV.
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}
