package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"berth/attempt"
	"berth/boottime"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
	"berth/node/executor"
	"berth/node/logs"
)

// isWorker reports whether this node holds no replica.
func (n *Node) isWorker() bool { return n.cfg.Role == compute.RoleWorker.String() }

// role returns what this node is.
func (n *Node) role() compute.Role {
	if n.isWorker() {
		return compute.RoleWorker
	}
	return compute.RoleServer
}

// upstream is what a worker asks of the servers.
type upstream interface {
	EachServer(ctx context.Context, do func(ctx context.Context, server compute.NodeID) error) error
	Call(ctx context.Context, node compute.NodeID, method string, request []byte) ([]byte, error)
	ContactAt() time.Duration
}

// ask calls a method of a server, and of the next one when that has not
// answered within each. That no server knows the method is no refusal: one that
// is new enough may answer later.
func ask(ctx context.Context, up upstream, each time.Duration, method string, req []byte) (answer []byte, err error) {
	err = up.EachServer(ctx, func(ctx context.Context, server compute.NodeID) error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		answer, err = up.Call(ctx, server, method, req)
		return err
	})
	if e, coded := errors.AsType[*compute.Error](err); coded && e.Detail == rpc.NoMethod {
		return nil, compute.Errorf(compute.CodeUnavailable, "The servers that answer are older than this worker: %w", err)
	}
	return answer, err
}

// assignments is a worker's work, by long polls of a server. What it has is
// never older than what it had: an answer of a server that is behind is not
// asked for.
type assignments struct {
	up    upstream
	codec rpc.Codec

	mu     sync.Mutex
	work   []compute.Work
	index  uint64
	digest compute.Hash
	recent recency
}

func newAssignments(up upstream) *assignments {
	return &assignments{up: up, codec: rpc.NewCodec()}
}

// Work is executor.Source: it returns at the latest when a poll was held for
// as long as servers hold them.
func (a *assignments) Work(ctx context.Context, _ uint64) (executor.Assigned, error) {
	contact := a.up.ContactAt()
	a.mu.Lock()
	req := pollRequest{After: a.index, Digest: a.digest, Fresh: a.recent.behind(contact)}
	a.mu.Unlock()
	if req.Fresh {
		req.Digest = compute.Hash{} // To be answered at once.
	}
	data, err := ask(ctx, a.up, pollHold+pollMargin, methodPoll, a.codec.Marshal(req))
	if err != nil {
		return executor.Assigned{}, err
	}
	var answer pollAnswer
	if err := a.codec.Unmarshal(data, &answer); err != nil {
		return executor.Assigned{}, fmt.Errorf("read own attempts: %w", err)
	}
	work := make([]compute.Work, len(answer.Work))
	for i, w := range answer.Work {
		if w.Attempt == nil || w.Execution == nil {
			return executor.Assigned{}, fmt.Errorf("read own attempts: an attempt is missing in the answer")
		}
		work[i] = compute.Work(w)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work, a.index, a.digest = work, answer.Index, answer.Digest
	if req.Fresh {
		a.recent.caughtUp(contact)
	}
	return executor.Assigned{
		Work: work, Index: answer.Index, Life: answer.Life, Contact: contactOver(contact, a.up.ContactAt()),
	}, nil
}

// maxReadGap is the most between two contacts for nothing to be given up from the
// one to the other: what the leader waits for at least, less a heartbeat's way.
const maxReadGap = attempt.Lease + attempt.Margin/2

// contactOver returns the contact from which leases of what was read between two
// of them count: the second, unless attempts may have been given up before it.
// Then, and without a first one, it is 0, and all is to be read again.
func contactOver(before, after time.Duration) time.Duration {
	if before == 0 || after-before > maxReadGap {
		return 0
	}
	return after
}

// current returns the newest work that is known, and the index of its state,
// 0 before the first.
func (a *assignments) current() ([]compute.Work, uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.work, a.index
}

// held returns how many thousandths of a device attempts hold.
func (a *assignments) held(id compute.GPUID) int {
	work, _ := a.current()
	total := 0
	for _, w := range work {
		total += shareOf(w.Attempt, id)
	}
	return total
}

// recency is whether what is known of own attempts may be out of date: there
// was no contact with the leader for a while.
type recency struct {
	fresh bool          // All was read anew,
	seen  time.Duration // and since then there was contact up to this boottime.
}

// behind reports whether all has to be read anew.
func (r *recency) behind(contact time.Duration) bool {
	if !r.fresh || contact-r.seen > attempt.NodeTTL || boottime.Now()-contact > attempt.NodeTTL {
		r.fresh = false
		return true
	}
	r.seen = contact
	return false
}

// caughtUp notes that all was read anew, when contact was the last one. Before
// the first one nothing that was read is enough.
func (r *recency) caughtUp(contact time.Duration) { r.fresh, r.seen = contact != 0, contact }

// remoteReporter takes a worker's word on its attempts to a server.
type remoteReporter struct{ up upstream }

// StartAttempt says that the user's process started.
func (r remoteReporter) StartAttempt(ctx context.Context, start compute.AttemptStart) error {
	_, err := ask(ctx, r.up, askEach, methodStart, rpc.NewCodec().Marshal(start))
	return err
}

// FinishAttempt says how an attempt ended.
func (r remoteReporter) FinishAttempt(ctx context.Context, outcome compute.Outcome) error {
	_, err := ask(ctx, r.up, askEach, methodFinish, rpc.NewCodec().Marshal(outcome))
	return err
}

// remoteBundles reads what a worker's attempts execute.
type remoteBundles struct{ up upstream }

// Bundle returns the bundle behind a reference.
func (b remoteBundles) Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	data := ref.Inline
	if len(data) == 0 {
		var err error
		if data, err = ask(ctx, b.up, askBundle, methodBundle, ref.Hash[:]); err != nil {
			return nil, err
		}
	}
	return compute.DecodeBundle(data)
}

// workerOutput is what a worker can say of attempts to who reads their output
// here: those on its disk, and whether one has ended once it has seen a state
// that is new enough to tell.
type workerOutput struct {
	self  compute.NodeID
	store *logs.Store
	own   *assignments
	want  uint64 // The index at which the reader saw the attempt live.
}

// Attempts is logs.State.
func (o workerOutput) Attempts(_ context.Context, id compute.ExecutionID) ([]compute.Attempt, *logs.Final, error) {
	work, index := o.own.current()
	live := slices.IndexFunc(work, func(w compute.Work) bool { return w.Attempt.Execution == id })
	if live < 0 && index < o.want {
		return nil, nil, nil // Its attempt may be on its way to this node.
	}
	var attempts []compute.Attempt
	for _, epoch := range o.store.Epochs(id) {
		attempts = append(attempts, compute.Attempt{Execution: id, Epoch: epoch, Node: o.self, Ended: true})
	}
	if live < 0 {
		if len(attempts) == 0 {
			return nil, nil, compute.Errorf(compute.CodeNotFound, "There is no output of this execution here.")
		}
		return attempts, nil, nil
	}
	now := *work[live].Attempt
	attempts = slices.DeleteFunc(attempts, func(a compute.Attempt) bool { return a.Epoch >= now.Epoch })
	return append(attempts, now), nil, nil
}

// Up reports that a node is there: of this one alone there is output.
func (workerOutput) Up(compute.NodeID) bool { return true }

// openWorkerOutput reads what executions print here, for servers.
func (n *Node) openWorkerOutput(context.Context) error {
	n.logs = logs.Open(n.cfg.DataDir)
	follower := func(want uint64) *logs.Follower {
		return logs.NewFollower(logs.FollowerConfig{
			Node: n.cluster.ID(), Store: n.logs, State: workerOutput{n.cluster.ID(), n.logs, n.own, want},
		})
	}
	n.progress = newProgressReader(follower(0).Read, n.opts.Now)
	n.cluster.Handle(methodDeleteLogs, cluster.Servers, n.deleteOutput)
	n.cluster.Handle(methodProgress, cluster.Servers, n.serveProgress)
	n.cluster.HandleStream(methodLogs, cluster.Servers,
		func(ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream) error {
			want, req, err := splitAsked(req)
			if err != nil {
				return err
			}
			if err := stream.Accept(nil); err != nil {
				return err
			}
			return follower(want).Serve(ctx, req, stream)
		})
	return nil
}

// openWorkerExecutor takes over the attempts of this worker that still live.
func (n *Node) openWorkerExecutor(ctx context.Context) error {
	return n.openExecutorWith(ctx, n.own, remoteReporter{n.cluster}, remoteBundles{n.cluster})
}

// announceWorker has the servers keep this worker's own record right.
func (n *Node) announceWorker(ctx context.Context) error {
	self := rpc.NewCodec().Marshal(n.self())
	for {
		_, err := ask(ctx, n.cluster, askEach, methodAnnounce, self)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // The end of ctx.
		}
		n.logger.Warn("own record not renewed", "err", err)
		loop.Sleep(ctx, announceIn)
	}
}

// neighbours returns the nodes that this worker knows of, for fence.
func (n *Node) neighbours() []*compute.Node {
	var nodes []*compute.Node
	for _, m := range n.cluster.Gossip().Members() {
		nodes = append(nodes, &compute.Node{RPC: m.RPC, Gossip: m.Gossip})
	}
	for _, s := range n.cluster.Servers() {
		nodes = append(nodes, &compute.Node{RPC: s.Address})
	}
	self := n.self()
	return slices.DeleteFunc(append(nodes, &self), func(n *compute.Node) bool {
		_, _, err := net.SplitHostPort(n.RPC)
		return err != nil
	})
}

// workerReady says what a worker still lacks to serve.
func (n *Node) workerReady() error {
	if _, index := n.own.current(); index == 0 {
		return errNotPolled
	}
	return nil
}

// errNotPolled is why a worker is not ready yet.
var errNotPolled = compute.Errorf(compute.CodeUnavailable, "no server has told this node of its work yet")

var _ executor.Source = (*assignments)(nil)
