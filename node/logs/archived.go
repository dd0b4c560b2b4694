package logs

import (
	"context"
	"errors"
	"io"

	"berth/compute"
)

// Archives opens output that is no longer on the disk of a node.
type Archives interface {
	// Open returns what an attempt printed, as Export has written it, and whether that is
	// all. It returns nil for output that is not archived.
	Open(ctx context.Context, execution compute.ExecutionID, epoch uint64) (output io.ReadCloser, whole bool, err error)
}

// Export writes what an ended attempt has printed to w, as Archives returns it, wherever
// that is now but in the archive. Whole is false where the end may be missing, because its
// node was lost before all was copied.
func (f *Follower) Export(ctx context.Context, a compute.Attempt, w io.Writer) (lines int, whole bool, err error) {
	s := &sender{w: w}
	c := cursor{f: f, execution: a.Execution, epoch: a.Epoch}
	c.fn = func(batch []Line) error {
		for i := range batch {
			_, batch[i].Seq = Split(batch[i].Seq)
		}
		lines += len(batch)
		return s.lines(batch)
	}
	err = c.fromNodes(ctx, a)
	if whole = err == nil; errors.Is(err, errBehind) {
		err = nil
	}
	if stopped, ok := errors.AsType[stoppedError](err); ok {
		err = stopped.err
	}
	if err == nil {
		err = s.end(nil)
	}
	return lines, whole, err
}

// archive is the archived output of one attempt.
type archive struct {
	of     compute.Attempt
	output io.ReadCloser
	whole  bool
}

// archiveError is an error of archived output. No node has that output, so that it must
// not be taken for output of a node that is down.
type archiveError struct{ err error }

func (a archiveError) Error() string { return a.err.Error() }

func (a archiveError) Unwrap() error { return a.err }

// openArchive opens the archived output of an attempt. Its output is nil if it is to be
// read from nodes: it is not archived, or only a part of it is while its node is up.
func (f *Follower) openArchive(ctx context.Context, a compute.Attempt) (archive, error) {
	from, err := f.openAny(ctx, a)
	if err == nil && from.output != nil && !from.whole && f.cfg.State.Up(a.Node) {
		return archive{}, from.output.Close()
	}
	return from, err
}

// openAny is openArchive, also for a part while the attempt's node is up.
func (f *Follower) openAny(ctx context.Context, a compute.Attempt) (archive, error) {
	if f.cfg.Archives == nil || !a.Ended {
		return archive{}, nil
	}
	output, whole, err := f.cfg.Archives.Open(ctx, a.Execution, a.Epoch)
	if err != nil {
		err = archiveError{err}
	}
	return archive{a, output, whole}, err
}

// archivedPart delivers the archived part of an attempt's output, if there is one. It is
// for a node that is up and has none of the output any more.
func (c *cursor) archivedPart(ctx context.Context, a compute.Attempt) error {
	from, err := c.f.openAny(ctx, a)
	if err != nil || from.output == nil {
		return err
	}
	if err = c.f.lines(ctx, from, &c.after, c.number); errors.Is(err, errBehind) {
		return c.markLost(a)
	}
	return err
}

// lines calls fn with the lines behind number *after, and advances *after. It closes the
// archive. The error is errBehind if the end may be missing. Unlike a node that is silent,
// an object store that is slow is waited for.
func (f *Follower) lines(ctx context.Context, from archive, after *uint64, fn func([]Line) error) error {
	r, stop := newReceiver(ctx, from.output, f.cfg.Store.memory)
	defer stop()
	r.endWatch()
	if err := r.lines(after, fn); err != nil {
		return archiveError{err}
	}
	return copyOf{owner: from.of.Node, complete: from.whole}.behind()
}

// tail returns the last output in an archive, with a mark where its end may be missing.
func (f *Follower) tail(ctx context.Context, from archive, limit int) (Tail, error) {
	t := newTailer(limit)
	err := f.scan(ctx, from, t.add)
	tail := t.tail()
	if errors.Is(err, errBehind) {
		tail.Combined = append(tail.Combined, lostText(from.of)+"\n"...)
		err = nil
	}
	return tail, err
}

// search searches the output in an archive.
func (f *Follower) search(ctx context.Context, from archive, q Search) (Found, error) {
	s := newFinder(q)
	err := f.scan(ctx, from, func(lines []Line) error {
		s.add(lines)
		return nil
	})
	found := s.result()
	if errors.Is(err, errBehind) {
		found.Missing = compute.MessageOf(err)
		err = nil
	}
	return found, err
}

// scan calls fn with all lines in an archive. It waits while other outputs are read whole.
func (f *Follower) scan(ctx context.Context, from archive, fn func([]Line) error) error {
	done, err := f.cfg.Store.tails.Take(ctx, from.of.Execution)
	if err != nil {
		return errors.Join(err, from.output.Close())
	}
	defer done()
	var after uint64
	return f.lines(ctx, from, &after, fn)
}
