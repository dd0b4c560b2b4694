package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fault"
)

// Limits of proposals.
const (
	MaxFrame       = 256<<10 + 6      // One encoded command with its head.
	maxEntry       = 512 << 10        // Over this, entries hurt heartbeats.
	maxFrames      = 256              // In one entry, the preamble included.
	enqueueTimeout = 2 * time.Second  // For raft to accept an entry; a timeout is definite.
	forwardTimeout = 10 * time.Second // For one call to the leader.
	proposeTimeout = time.Minute      // For a proposal whose context has no deadline.
	maxHops        = 2                // A proposal is forwarded once, and once more if the leader just changed.
)

// commitStatus says whether a proposal is known to be committed.
type commitStatus uint8

const (
	statusNotCommitted commitStatus = iota // Certainly not committed.
	statusUnknown                          // Perhaps committed.
	statusCommitted                        // Committed and applied.
)

// outcome is the result of one attempt to commit a proposal. It is also the wire
// format of the answer to a forwarded one.
type outcome struct {
	Status commitStatus   `cbor:"1,keyasint,omitempty"`
	Result []byte         `cbor:"2,keyasint,omitempty"`
	Index  uint64         `cbor:"3,keyasint,omitempty"`
	Err    *compute.Error `cbor:"4,keyasint,omitempty"` // A retry would not help.
}

// proposal is one frame that waits or is being committed.
type proposal struct {
	frame []byte
	hops  int
	state atomic.Int32
	done  chan outcome // Buffered for one; gets exactly one outcome unless abandoned.
}

// The states of a proposal. Only a waiting one can be abandoned.
const (
	proposalWaiting = iota
	proposalSent
	proposalAbandoned
)

// take reports whether the proposal may be sent, once.
func (p *proposal) take() bool { return p.state.CompareAndSwap(proposalWaiting, proposalSent) }

// abandon reports whether the proposal had not been sent and never will be.
func (p *proposal) abandon() bool {
	return p.state.CompareAndSwap(proposalWaiting, proposalAbandoned)
}

// proposals are the two batchers: into this node's raft when it leads, else to
// the leader.
type proposals struct {
	local  *batcher
	remote *batcher
}

func newProposals(c *Cluster) *proposals {
	return &proposals{
		local:  &batcher{spawn: c.work.Go, send: c.proposer.applyBatch},
		remote: &batcher{spawn: c.work.Go, send: c.proposer.forwardBatch},
	}
}

// Propose commits and applies a frame, and returns the state machine's result on
// the leader with the entry's index. This node's own replica may still be behind;
// wait for the index where that matters.
//
// Propose retries until ctx ends, also when the outcome of an attempt is unknown.
// So the frame must name its operation in a way by which the state machine
// recognises a repeat. If ctx ends first, the error is CodeUnavailable and says
// whether the outcome is unknown.
func (c *Cluster) Propose(ctx context.Context, frame []byte) (result []byte, index uint64, err error) {
	if len(frame) == 0 || len(frame) > MaxFrame {
		return nil, 0, compute.Errorf(compute.CodeTooLarge,
			"The command has %d bytes, %d are allowed.", len(frame), MaxFrame)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	start, open := time.Now(), false //nolint:forbidigo // A stopwatch.
	for {
		changed := c.leaders.next()
		o := c.proposer.try(ctx, frame, 0)
		switch {
		case o.Status == statusCommitted && o.Err == nil:
			return o.Result, o.Index, nil
		case o.Err != nil && (!open || o.Status == statusCommitted):
			return nil, 0, o.Err
		case o.Err != nil && o.Err.Code == compute.CodeNoSpace:
			return nil, 0, proposeError(o.Err, open) // An earlier attempt may have been committed.
		}
		open = open || o.Status == statusUnknown
		if !open && time.Since(start) > leaderWait {
			return nil, 0, errNoLeader()
		}
		if err := c.leadership.awaitChange(ctx, changed); err != nil {
			return nil, 0, proposeError(err, open)
		}
	}
}

// proposeError is the error when ctx has ended.
func proposeError(err error, open bool) error {
	if open {
		e := compute.Errorf(compute.CodeUnavailable,
			"The outcome is unknown: repeat the request with the same Idempotency-Key. (%w)", err)
		return e.Named("outcome_unknown").Retry(time.Second)
	}
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e
	}
	return errNoLeader()
}

// proposer commits proposals here or has the leader commit them.
type proposer struct{ *Cluster }

// try sends a frame once, to this node's raft or to the leader.
func (c proposer) try(ctx context.Context, frame []byte, hops int) outcome {
	way := c.way()
	if way == nil {
		return outcome{}
	}
	p := &proposal{frame: frame, hops: hops, done: make(chan outcome, 1)}
	if way.add(p) == 0 {
		e := compute.Errorf(compute.CodeUnavailable, "This node has too many requests waiting.")
		return outcome{Err: e.Retry(time.Second)}
	}
	select {
	case o := <-p.done:
		return o
	case <-ctx.Done():
		if p.abandon() {
			return outcome{}
		}
		return outcome{Status: statusUnknown}
	}
}

// way returns the batcher for a proposal, nil when there is no leader.
func (c proposer) way() *batcher {
	if c.IsLeader() {
		return c.proposals.local
	}
	if leader, known := c.Leader(); known && leader != c.id {
		return c.proposals.remote
	}
	return nil
}

// applyBatch commits a batch as one entry.
func (c proposer) applyBatch(batch []*proposal) {
	if !c.IsLeader() {
		finish(batch, outcome{})
		return
	}
	if batch = c.space.admit(batch); len(batch) == 0 {
		return
	}
	head := c.leadership.preamble(c.raft.CurrentTerm())
	data := append(make([]byte, 0, len(head)+sizeOf(batch)), head...)
	for _, p := range batch {
		data = append(data, p.frame...)
	}
	start := time.Now() //nolint:forbidigo // A stopwatch.
	fault.Point("cluster.propose.before_apply")
	future := c.raft.Apply(data, enqueueTimeout)
	err := c.raftNode.answerTo(future)
	c.refusals.note(time.Now(), err) //nolint:forbidigo // A stopwatch.
	if err != nil {
		finish(batch, outcome{Status: commitStatusOf(err)})
		return
	}
	c.commits.Committed()
	fault.Point("cluster.propose.after_apply")
	c.metrics.commit.Observe(time.Since(start).Seconds())
	c.metrics.batch.Observe(float64(len(batch)))
	results, ok := future.Response().([][]byte)
	if ok && len(head) > 0 && len(results) > 0 {
		results = results[1:]
	}
	if !ok || len(results) != len(batch) {
		err := fmt.Errorf("the state machine answered entry %d with %T for %d frames",
			future.Index(), future.Response(), len(batch))
		finish(batch, outcome{Status: statusCommitted, Err: compute.Errorf(compute.CodeInternal, "%w", err)})
		return
	}
	for i, p := range batch {
		p.done <- outcome{Status: statusCommitted, Result: results[i], Index: future.Index()}
	}
}

// answerTo waits for a future of raft. A raft that shuts down never answers the
// futures that wait for the state machine.
func (c raftNode) answerTo(future raft.Future) error {
	answer := make(chan error, 1)
	go func() { answer <- future.Error() }()
	select {
	case err := <-answer:
		return err
	case <-c.down:
	}
	select {
	case err := <-answer:
		return err
	default:
		return raft.ErrRaftShutdown
	}
}

// ApplyEntry commits data as one entry, without batching and preamble, and waits
// until this node has applied it. Only the leader can. It measures plain Raft.
func (c *Cluster) ApplyEntry(data []byte) error {
	if err := c.raftNode.answerTo(c.raft.Apply(data, enqueueTimeout)); err != nil {
		return fmt.Errorf("apply entry: %w", err)
	}
	c.commits.Committed()
	return nil
}

// commitStatusOf classifies an error of raft.Apply. Every error that is not definite
// means unknown: a failed append may still be on a disk.
func commitStatusOf(err error) commitStatus {
	for _, definite := range []error{
		raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress, raft.ErrAbortedByRestore,
	} {
		if errors.Is(err, definite) {
			return statusNotCommitted
		}
	}
	return statusUnknown
}

// proposeRequest carries a batch to the leader.
type proposeRequest struct {
	Frames [][]byte `cbor:"1,keyasint"`
	Hops   int      `cbor:"2,keyasint"`
}

// proposeAnswer carries the outcomes back, in the same order.
type proposeAnswer struct {
	Outcomes []outcome `cbor:"1,keyasint"`
}

// forwardBatch sends a batch to the leader.
func (c proposer) forwardBatch(batch []*proposal) {
	leader, known := c.Leader()
	req := proposeRequest{Frames: make([][]byte, len(batch))}
	for i, p := range batch {
		req.Frames[i] = p.frame
		req.Hops = max(req.Hops, p.hops+1)
	}
	if !known || leader == c.id || req.Hops > maxHops {
		finish(batch, outcome{})
		return
	}
	ctx, cancel := c.leadership.whileLeads(leader, forwardTimeout)
	defer cancel()
	var answer proposeAnswer
	fault.Point("cluster.propose.forward")
	data, err := c.Call(ctx, leader, methodPropose, c.codec.Marshal(req))
	if err == nil {
		err = c.codec.Unmarshal(data, &answer)
	}
	if err == nil && len(answer.Outcomes) != len(batch) {
		err = fmt.Errorf("%d outcomes for %d proposals", len(answer.Outcomes), len(batch))
	}
	if err != nil {
		o := outcome{Status: statusUnknown}
		if errors.Is(err, rpc.ErrNotSent) {
			o.Status = statusNotCommitted
		}
		if e, ok := errors.AsType[*compute.Error](err); ok && e.Code == compute.CodeForbidden {
			o = outcome{Err: e}
		}
		finish(batch, o)
		return
	}
	fault.Point("cluster.propose.forwarded")
	for i, p := range batch {
		p.done <- answer.Outcomes[i]
	}
}

// whileLeads returns a context that ends after timeout, when this node stops, or
// when it learns of another leader: the old one may never answer.
func (c leadership) whileLeads(leader compute.NodeID, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	c.work.Go(func() {
		defer cancel()
		for {
			changed := c.leaders.next()
			if now, known := c.Leader(); known && now != leader {
				return
			}
			select {
			case <-changed:
			case <-c.closed:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, cancel
}

// handlePropose commits the proposals that another server forwarded.
func (c proposer) handlePropose(ctx context.Context, _ rpc.Peer, data []byte) ([]byte, error) {
	var req proposeRequest
	if err := c.codec.Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The proposal cannot be read: %w", err)
	}
	if len(req.Frames) > maxFrames {
		return nil, compute.Errorf(compute.CodeTooLarge, "%d frames are over the limit of %d.", len(req.Frames), maxFrames)
	}
	answer := proposeAnswer{Outcomes: make([]outcome, len(req.Frames))}
	batch := make([]*proposal, len(req.Frames))
	valid := make([]*proposal, 0, len(req.Frames))
	for i, frame := range req.Frames {
		batch[i] = &proposal{frame: frame, hops: req.Hops, done: make(chan outcome, 1)}
		if len(frame) == 0 || len(frame) > MaxFrame {
			batch[i].done <- outcome{}
		} else {
			valid = append(valid, batch[i])
		}
	}
	taken := 0
	if way := c.way(); way != nil {
		taken = way.add(valid...)
	}
	finish(valid[taken:], outcome{})
	for i, p := range batch {
		select {
		case answer.Outcomes[i] = <-p.done:
		case <-ctx.Done():
			if !p.abandon() {
				answer.Outcomes[i].Status = statusUnknown
			}
		}
	}
	fault.Point("cluster.propose.answer")
	return c.codec.Marshal(answer), nil
}

// finish gives every proposal of a batch the same outcome.
func finish(batch []*proposal, o outcome) {
	for _, p := range batch {
		p.done <- o
	}
}

// sizeOf returns the bytes of all frames.
func sizeOf(batch []*proposal) int {
	n := 0
	for _, p := range batch {
		n += len(p.frame)
	}
	return n
}
