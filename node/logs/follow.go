package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"berth/compute"
	"berth/loop"
)

// State reports what the cluster knows of an execution's attempts. It is called
// often and answers from memory, except for an execution that ended long ago.
type State interface {
	// Attempts returns the attempts of an execution in the order of their
	// epochs and, once its status is terminal, how it ended. The code is
	// not_found for an execution that is unknown or was deleted.
	Attempts(context.Context, compute.ExecutionID) ([]compute.Attempt, *Final, error)
	// Changed returns a channel that is closed once Attempts may answer something
	// else than at the time of the call; nil for a State that is polled.
	Changed() <-chan struct{}
	// Up reports whether a node is alive as far as the cluster knows.
	Up(compute.NodeID) bool
}

// Peers opens streams to other nodes.
type Peers interface {
	// Stream has the node's Follower serve req and returns the answer. Close
	// may be called while another goroutine reads.
	Stream(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error)
}

// changePause separates two reads of a state that keeps changing.
const changePause = 5 * time.Millisecond

// Retries of requests to a node that does not answer.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 2 * time.Second
	maxRetries = 4 // Once the attempt has ended. Until then the retries go on for as long as the caller waits.
)

// FollowerConfig holds the settings and dependencies of a Follower.
type FollowerConfig struct {
	Node  compute.NodeID // This node.
	Store *Store
	State State
	Peers Peers
	// Copies are those on this node, and Holders returns the nodes that may have copies
	// of an execution's output, the likeliest first, this one included. Nil for none.
	Copies  Copies
	Holders func(compute.ExecutionID) []compute.NodeID
	// Archives has output that nodes no longer have. Nil for none.
	Archives Archives
}

// Follower reads the output of any execution of the cluster. Its methods are
// safe for concurrent use.
type Follower struct {
	cfg FollowerConfig
}

// NewFollower returns a Follower.
func NewFollower(cfg FollowerConfig) *Follower { return &Follower{cfg: cfg} }

// Follow calls fn with every line of the execution behind number after, as they
// are written, attempt after attempt, until the execution has ended. The lines
// carry numbers as Number makes them, and each is delivered once. They are valid during
// the call of fn. An error of fn ends Follow and is returned.
//
// While the node of an attempt's output is down, its copy is read. If the attempt
// has ended and the copy may lack the end, a line of System says so. If there is no
// copy and a later attempt exists, such a line replaces the output. Output that cannot be read on a node
// that is up is an error. If the execution has ended and the output of its
// newest attempt is on a node that is down, the code is unavailable and Final
// is valid.
func (f *Follower) Follow(
	ctx context.Context, execution compute.ExecutionID, after uint64, fn func([]Line) error,
) (Final, error) {
	c := cursor{f: f, execution: execution, fn: fn, live: true}
	c.epoch, c.after = Split(after)
	return c.run(ctx)
}

// maxRead bounds the text that one Read returns.
const maxRead = 8 << 20

// Read returns at most limit lines behind number after, without waiting for
// more. It returns fewer when they are large. The caller continues at the last
// line's number.
func (f *Follower) Read(
	ctx context.Context, execution compute.ExecutionID, after uint64, limit int,
) ([]Line, error) {
	var all []Line
	size := 0
	c := cursor{f: f, execution: execution}
	c.fn = func(lines []Line) error {
		for _, l := range lines {
			if len(all) >= limit || size >= maxRead {
				return errEnough
			}
			l.Text = bytes.Clone(l.Text)
			all = append(all, l)
			size += len(l.Text)
		}
		return nil
	}
	c.epoch, c.after = Split(after)
	if _, err := c.run(ctx); err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return all, nil
}

// errEnough ends a Read that has all the lines it wants.
var errEnough = errors.New("enough lines")

// Tail returns the last output of the execution's newest attempt, at most
// limit bytes of each text. It is empty before the first attempt.
func (f *Follower) Tail(ctx context.Context, execution compute.ExecutionID, limit int) (Tail, error) {
	attempts, _, err := f.cfg.State.Attempts(ctx, execution)
	if err != nil || len(attempts) == 0 {
		return Tail{}, err
	}
	newest := attempts[len(attempts)-1]
	of := attempt{execution, newest.Epoch}
	archive, err := f.openArchive(ctx, newest)
	switch {
	case err != nil:
		return Tail{}, err
	case archive.output != nil:
		return f.tail(ctx, archive, limit)
	}
	if newest.Node == f.cfg.Node {
		return f.tailHere(ctx, f.cfg.Store, of, limit)
	}
	var tail Tail
	err = f.elsewhere(ctx, newest, func() (err error) {
		tail, err = f.tailOf(ctx, newest.Node, request{mode: modeTail, of: of, limit: limit})
		return err
	}, func(k copyOf) (err error) {
		if k.node == f.cfg.Node {
			tail, err = f.tailHere(ctx, f.cfg.Copies.From(k.owner), of, limit)
		} else {
			tail, err = f.tailOf(ctx, k.node, request{mode: modeTail, of: of, copy: k.owner, limit: limit})
		}
		if !k.complete && f.ended(ctx, of) {
			tail.Combined = append(tail.Combined, lostText(newest)+"\n"...)
		}
		return err
	})
	return tail, err
}

// tailHere returns the last output of an attempt in a store of this node.
func (f *Follower) tailHere(ctx context.Context, s *Store, of attempt, limit int) (tail Tail, err error) {
	err = s.tail(ctx, of, limit, func(t Tail) error {
		tail = t
		return nil
	})
	return tail, err
}

// tailOf returns the last output of an attempt on another node.
func (f *Follower) tailOf(ctx context.Context, node compute.NodeID, req request) (tail Tail, err error) {
	err = f.ask(ctx, node, req, func(r *receiver) error {
		for {
			rec, err := r.next()
			switch {
			case err != nil:
				return err
			case rec.kind == kindTail:
				tail.addPiece(rec.tail)
			case rec.kind == kindFault:
				return &rec.fault
			case rec.kind == kindOver:
				return nil
			}
		}
	})
	return tail, err
}

// ask calls read with the answer of another node. Errors of the stream get the
// code unavailable.
func (f *Follower) ask(ctx context.Context, node compute.NodeID, req request, read func(*receiver) error) error {
	stream, err := f.cfg.Peers.Stream(ctx, node, req.encode())
	if err == nil {
		r, stop := newReceiver(ctx, stream, f.cfg.Store.memory)
		err = read(r)
		stop()
	}
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if _, coded := errors.AsType[*compute.Error](err); coded {
		return err
	}
	if _, own := errors.AsType[stoppedError](err); own {
		return err
	}
	return compute.Errorf(compute.CodeUnavailable,
		"The output is on node %s, which does not answer: %w", node, err).Retry(retryLast)
}

// ended reports whether no process writes the attempt's output.
func (f *Follower) ended(ctx context.Context, a attempt) bool {
	attempts, final, err := f.cfg.State.Attempts(ctx, a.execution)
	if final != nil || err != nil {
		return true
	}
	for _, known := range attempts {
		if known.Epoch >= a.epoch {
			return known.Ended || known.Epoch > a.epoch // The next attempt begins after this one has ended.
		}
	}
	return false // A replica that lags does not know the attempt yet.
}

// cursor is one caller's position in the output of an execution.
type cursor struct {
	f         *Follower
	execution compute.ExecutionID
	live      bool // Wait for more.
	epoch     uint64
	after     uint64 // In that epoch.
	fn        func([]Line) error
}

// run follows the attempts in order.
func (c *cursor) run(ctx context.Context) (Final, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		changed := c.f.cfg.State.Changed()
		attempts, final, err := c.f.cfg.State.Attempts(ctx, c.execution)
		if err != nil {
			return Final{}, err
		}
		if a, found := c.pick(attempts); found {
			err := c.attempt(ctx, a)
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, errBehind) && !c.f.ended(ctx, attempt{c.execution, a.Epoch}):
				return Final{}, nil // A Read returns early: the attempt still writes, or its node is unreachable.
			case errors.Is(err, errBehind) && !c.f.cfg.State.Up(a.Node):
				err = c.markLost(a)
			case c.f.gone(ctx, a, err):
				err = c.markMissing(a)
			}
			if err != nil {
				return c.failed(ctx, err)
			}
			c.epoch, c.after = a.Epoch+1, 0
			continue
		}
		if final != nil || !c.live {
			return deref(final), nil
		}
		select {
		case <-ctx.Done():
			return Final{}, ctx.Err()
		case <-changed:
			loop.Sleep(ctx, changePause)
		case <-ticker.C:
		}
	}
}

// gone reports whether the output of a, which could not be read because of err,
// is on a node that is down, while a later attempt exists. Output on a node
// that is up can be read in a moment, or already from another server.
func (f *Follower) gone(ctx context.Context, a compute.Attempt, err error) bool {
	if _, archived := errors.AsType[archiveError](err); archived {
		return false
	}
	if a.Node == f.cfg.Node || compute.CodeOf(err) != compute.CodeUnavailable || f.cfg.State.Up(a.Node) {
		return false
	}
	attempts, _, _ := f.cfg.State.Attempts(ctx, a.Execution) // An error counts as no.
	return len(attempts) > 0 && attempts[len(attempts)-1].Epoch > a.Epoch
}

// markMissing delivers a line that says that the rest of an attempt's output is
// missing. The line has a number behind every possible one of the attempt, so
// that the caller goes on with the next attempt.
func (c *cursor) markMissing(a compute.Attempt) error {
	if c.after == lastSeq {
		return nil // The line was delivered.
	}
	text := fmt.Sprintf("[berth: the rest of attempt %d is left out here: it is on node %s, which is down]",
		a.Epoch, a.Node)
	return c.deliver([]Line{{Seq: lastSeq, At: a.EndedAt, Stream: System, Text: []byte(text)}})
}

// pick returns the attempt to continue with.
func (c *cursor) pick(attempts []compute.Attempt) (compute.Attempt, bool) {
	for _, a := range attempts {
		if a.Epoch >= c.epoch {
			if a.Epoch > c.epoch {
				c.epoch, c.after = a.Epoch, 0
			}
			return a, true
		}
	}
	return compute.Attempt{}, false
}

// failed returns the result of run for err.
func (c *cursor) failed(ctx context.Context, err error) (Final, error) {
	if own, ok := errors.AsType[stoppedError](err); ok {
		return Final{}, own.err
	}
	_, final, _ := c.f.cfg.State.Attempts(ctx, c.execution) // An error here matters less than err.
	return deref(final), fmt.Errorf("follow log: %w", err)
}

// attempt follows one attempt to its end, wherever it is.
func (c *cursor) attempt(ctx context.Context, a compute.Attempt) error {
	archive, err := c.f.openArchive(ctx, a)
	switch {
	case err != nil:
		return err
	case archive.output != nil:
		return c.f.lines(ctx, archive, &c.after, c.number)
	}
	before := c.after
	if err = c.fromNodes(ctx, a); err == nil && c.after == before && c.after == 0 {
		return c.archivedPart(ctx, a)
	}
	return err
}

// fromNodes follows one attempt to its end on the node that has it.
func (c *cursor) fromNodes(ctx context.Context, a compute.Attempt) error {
	of := attempt{c.execution, a.Epoch}
	if a.Node == c.f.cfg.Node {
		h := hooks{ended: always, lines: c.deliver, idle: proceed}
		if c.live {
			h.ended = func() bool { return c.f.ended(ctx, of) }
		}
		_, err := c.f.cfg.Store.follow(ctx, of, c.after, h)
		return err
	}
	return c.remote(ctx, a.Node, of)
}

// remote follows an attempt on another node. When the stream breaks, it asks
// again from the number it has reached. While the node is down, it reads the copy.
func (c *cursor) remote(ctx context.Context, node compute.NodeID, of attempt) error {
	wait, failures := retryFirst, 0
	for {
		before := c.after
		err := c.once(ctx, node, of)
		if err == nil || ctx.Err() != nil || !retriable(err) || !c.live && errors.Is(err, errBehind) {
			return err
		}
		if c.after != before {
			wait, failures = retryFirst, 0
		}
		if failures++; failures > maxRetries && (!c.live || c.f.ended(ctx, of)) {
			return err
		}
		if !loop.Sleep(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, retryLast)
	}
}

// once asks for the output that another node has, once. It reads the copy while the node
// is down, or does not answer.
func (c *cursor) once(ctx context.Context, node compute.NodeID, of attempt) error {
	up := c.f.cfg.State.Up(node)
	if up {
		err := c.fromOwner(ctx, node, of)
		if err == nil || ctx.Err() != nil || compute.CodeOf(err) != compute.CodeUnavailable {
			return err
		}
		if k, ok := c.f.findCopy(ctx, node, of); ok {
			return c.fromCopy(ctx, k, of)
		}
		return err
	}
	if k, ok := c.f.findCopy(ctx, node, of); ok {
		return c.fromCopy(ctx, k, of)
	}
	return c.fromOwner(ctx, node, of)
}

// fromOwner asks the node that has written the output.
func (c *cursor) fromOwner(ctx context.Context, node compute.NodeID, of attempt) error {
	req := request{mode: modeRead, of: of, after: c.after, limit: understandsLines | acknowledges}
	if c.live {
		req.mode = modeFollow
	}
	return c.f.ask(ctx, node, req, func(r *receiver) error {
		err := r.lines(&c.after, c.number)
		return err
	})
}

// retriable reports whether a retry may help.
func retriable(err error) bool {
	code := compute.CodeOf(err)
	_, own := errors.AsType[stoppedError](err)
	return !own && (code == compute.CodeUnavailable || code == compute.CodeInternal)
}

// deliver passes on lines of this node's disk.
func (c *cursor) deliver(lines []Line) error {
	last := lines[len(lines)-1].Seq
	if err := c.number(lines); err != nil {
		return stoppedError{err}
	}
	c.after = last
	return nil
}

// number gives lines their numbers in the execution and passes them on.
func (c *cursor) number(lines []Line) error {
	for i := range lines {
		lines[i].Seq = Number(c.epoch, lines[i].Seq)
	}
	return c.fn(lines)
}

// deref returns *final, or the zero Final.
func deref(final *Final) Final {
	if final == nil {
		return Final{}
	}
	return *final
}
