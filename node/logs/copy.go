package logs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/compute"
)

// Copies are the copies of other nodes' output on this node.
type Copies interface {
	// From returns a Store of the copies of a node's output.
	From(compute.NodeID) *Store
	// Position returns how far a copy goes: a number that rises with it, 0 without a copy.
	Position(node compute.NodeID, execution compute.ExecutionID, epoch uint64) uint64
	// Complete reports whether a copy has all there was.
	Complete(node compute.NodeID, execution compute.ExecutionID, epoch uint64) bool
}

// Limits of the search for a copy.
const (
	askedAtOnce = 8
	askTimeout  = 2 * time.Second
)

// copyOf is the copy of an attempt's output.
type copyOf struct {
	owner    compute.NodeID // The node that wrote the output.
	node     compute.NodeID // The node that has the copy.
	position uint64
	complete bool
}

// copyHere returns this node's copy.
func (f *Follower) copyHere(owner compute.NodeID, of attempt) copyOf {
	c := copyOf{owner: owner, node: f.cfg.Node, position: f.cfg.Copies.Position(owner, of.execution, of.epoch)}
	c.complete = c.position > 0 && f.cfg.Copies.Complete(owner, of.execution, of.epoch)
	return c
}

// sendCopy sends how far a copy goes.
func (s *sender) sendCopy(c copyOf) error {
	n := c.position << 1
	if c.complete {
		n |= 1
	}
	s.buf = finish(binary.AppendUvarint(begin(s.buf[:0], kindCopy), n), 0)
	return s.send()
}

// findCopy finds the copy that goes furthest. It asks the nodes in the order in which they
// are chosen for copies, a few at a time, until one has it.
func (f *Follower) findCopy(ctx context.Context, owner compute.NodeID, of attempt) (best copyOf, ok bool) {
	if f.cfg.Holders == nil {
		return copyOf{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	nodes := f.cfg.Holders(of.execution)
	for len(nodes) > 0 && best.position == 0 && ctx.Err() == nil {
		n := min(askedAtOnce, len(nodes))
		found := make([]copyOf, n)
		var group sync.WaitGroup
		for i, node := range nodes[:n] {
			group.Go(func() { found[i] = f.copyOn(ctx, node, owner, of) })
		}
		group.Wait()
		for _, c := range found {
			if c.position > best.position {
				best = c
			}
		}
		nodes = nodes[n:]
	}
	return best, best.position > 0
}

// copyOn returns the copy on a node. One that does not answer counts as having none.
func (f *Follower) copyOn(ctx context.Context, node, owner compute.NodeID, of attempt) copyOf {
	if node == f.cfg.Node {
		return f.copyHere(owner, of)
	}
	c := copyOf{owner: owner, node: node}
	_ = f.ask(ctx, node, request{mode: modeCopy, of: of, copy: owner}, func(r *receiver) error {
		rec, err := r.next()
		if err == nil && rec.kind == kindCopy {
			c.position, c.complete = rec.total>>1, rec.total&1 != 0
		}
		return err
	})
	return c
}

// errBehind says that a copy was read to its end, and that the output may have more.
var errBehind = errors.New("the copy may lack the end of the output")

// behind returns the error of a copy that was read.
func (c copyOf) behind() error {
	if c.complete {
		return nil
	}
	message := fmt.Sprintf("The output is on node %s, which is down, and its copy may lack the end.", c.owner)
	return &compute.Error{Code: compute.CodeUnavailable, Message: message, Err: errBehind, RetryAfter: retryLast}
}

// fromCopy delivers what a copy has.
func (c *cursor) fromCopy(ctx context.Context, k copyOf, of attempt) error {
	var err error
	if k.node == c.f.cfg.Node {
		_, err = c.f.cfg.Copies.From(k.owner).follow(ctx, of, c.after,
			hooks{ended: always, lines: c.deliver, idle: proceed})
	} else {
		read := request{mode: modeRead, of: of, copy: k.owner, after: c.after, limit: understandsLines | acknowledges}
		err = c.f.ask(ctx, k.node, read,
			func(r *receiver) error {
				err := r.lines(&c.after, c.number)
				return err
			})
	}
	if err != nil {
		return err
	}
	return k.behind()
}

// markLost delivers a line that says that the end of an attempt's output may be lost. Its
// number is as in markMissing.
func (c *cursor) markLost(a compute.Attempt) error {
	if c.after == lastSeq {
		return nil // The line was delivered.
	}
	return c.deliver([]Line{{Seq: lastSeq, At: a.EndedAt, Stream: System, Text: []byte(lostText(a))}})
}

// lostText is the mark for output that is lost with its node.
func lostText(a compute.Attempt) string {
	return fmt.Sprintf(
		"[berth: up to 2 s of output are lost here: node %s went down before the end of attempt %d was copied]",
		a.Node, a.Epoch)
}

// elsewhere calls own with the node of an attempt's output, or copied with a copy of it
// while the node is down or does not answer.
func (f *Follower) elsewhere(
	ctx context.Context, a compute.Attempt, own func() error, copied func(copyOf) error,
) error {
	of := attempt{a.Execution, a.Epoch}
	up := f.cfg.State.Up(a.Node)
	if up {
		err := own()
		if compute.CodeOf(err) != compute.CodeUnavailable || ctx.Err() != nil {
			return err
		}
		if k, ok := f.findCopy(ctx, a.Node, of); ok {
			return copied(k)
		}
		return err
	}
	if k, ok := f.findCopy(ctx, a.Node, of); ok {
		return copied(k)
	}
	return own()
}
