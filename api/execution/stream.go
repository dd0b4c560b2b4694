package execution

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/loop"
)

// Limits of output streams.
const (
	eventTime    = time.Second      // Between the first and the last line of an event.
	eventBytes   = 32 << 10         // Bytes of lines in one event. Few followers are given so many at once.
	commentEvery = 15 * time.Second // Keeps the connection alive, and finds out that it is not.
	followRetry  = time.Second      // Between tries to read output that nobody can serve.
	archiveRetry = time.Second / 4  // Between tries to load an archive that cannot be read,
	archiveTries = 60               // and their number before the stream ends without a last event.
)

// stream sends the output of one execution to one client.
type stream struct {
	of     *executions
	ctx    context.Context //nolint:containedctx // Set by serve; ends with the stream.
	id     compute.ExecutionID
	after  uint64 // The newest line that was sent.
	w      *answer.EventWriter
	broken atomic.Pointer[error] // Why the output could not be read at the last try.
}

// batch has lines in transit from the reader to the client.
type batch struct {
	lines []handler.Line
	sent  chan error
}

// serve sends everything until the execution has ended and its output is
// complete, the client is gone, or the node stops.
func (t *stream) serve(ctx context.Context, e *compute.Execution) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.ctx = ctx
	if err := t.w.Comment(); err != nil {
		return err
	}
	batches := make(chan batch)
	complete := make(chan struct{})
	after := t.after
	wait, release := t.of.awaitEnd(e) //nolint:contextcheck // The wait is all streams'.
	defer release()
	wg.Go(func() { t.follow(e, after, batches, complete) })
	return t.pump(batches, complete, wait)
}

// pump sends batches until the output is complete.
func (t *stream) pump(batches <-chan batch, complete <-chan struct{}, wait *awaited) error {
	ticker := time.NewTicker(commentEvery)
	defer ticker.Stop()
	var drain timeout
	defer drain.stop()
	var final *compute.Execution
	ended := wait.known
	for {
		select {
		case <-t.ctx.Done():
			return t.ctx.Err()
		case b := <-batches:
			err := t.send(b.lines)
			b.sent <- err
			if err != nil {
				return err
			}
			if ended == nil {
				drain.start(t.of.Config.Limits.LastLines)
			}
		case <-ticker.C:
			if err := t.w.Comment(); err != nil {
				return err
			}
		case <-complete:
			complete = nil
		case <-ended:
			if wait.end.err != nil {
				return wait.end.err // The client asks again, or elsewhere.
			}
			final, ended = wait.end.e, nil
			drain.start(t.of.Config.Limits.LastLines)
		case <-drain.C:
			return t.giveUp(final)
		}
		if complete == nil && ended == nil {
			return t.finish(final, "")
		}
	}
}

// timeout is a timer that may be started again before it fires.
type timeout struct {
	C     <-chan time.Time // Nil until it is started.
	timer *time.Timer
}

func (t *timeout) start(d time.Duration) {
	t.stop()
	t.timer = time.NewTimer(d)
	t.C = t.timer.C
}

func (t *timeout) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// giveUp ends the wait for the rest of the output of an ended execution. If the
// node that has it is up, the stream ends without its last event, so that the
// client resumes; else the last event says why output may be missing.
func (t *stream) giveUp(final *compute.Execution) error {
	missing, err := t.missing(final)
	if err != nil {
		return err
	}
	return t.finish(final, missing)
}

// missing returns why the rest of the output is unavailable, "" if there is no
// rest, or an error if it is available later or elsewhere.
func (t *stream) missing(final *compute.Execution) (string, error) {
	if final == nil || final.Epoch == 0 {
		return "", nil
	}
	view, _, _ := t.of.Config.Reader.Stale()
	known, err := t.of.awaitArchived(t.ctx, t.id, view)
	if err != nil {
		return "", err
	}
	broken := t.broken.Load()
	silent := broken == nil || compute.CodeOf(*broken) == compute.CodeUnavailable
	attempts := known.Attempts(t.id)
	if !silent || len(attempts) == 0 {
		return "The output cannot be read any more.", nil
	}
	id := attempts[len(attempts)-1].Node
	if n, ok := view.Node(id); ok && n.State == compute.NodeUp {
		return "", compute.Errorf(compute.CodeUnavailable, "The output is on node %s, which does not answer this one.", id)
	}
	return fmt.Sprintf("The output is on node %s, which is down: it can be read once that is back.", id), nil
}

// follow passes the output to serve and closes complete at its end. Parents and
// executions that never started have no output.
func (t *stream) follow(e *compute.Execution, after uint64, batches chan<- batch, complete chan<- struct{}) {
	defer close(complete)
	if e.Kind.IsParent() {
		return
	}
	began := func(e *compute.Execution) bool { return e.Epoch > 0 || e.Status.Terminal() }
	if !began(e) {
		var err error
		if e, err = t.of.next(t.ctx, t.id, began); e == nil || err != nil {
			return
		}
	}
	if e.Epoch == 0 {
		return
	}
	for {
		err := t.of.Config.Logs.Follow(t.ctx, t.id, after, func(lines []handler.Line) error {
			if len(lines) == 0 {
				return nil
			}
			if err := t.pass(batches, lines); err != nil {
				return err
			}
			after = lines[len(lines)-1].Seq
			t.broken.Store(nil)
			return nil
		})
		if err == nil || t.ctx.Err() != nil {
			return
		}
		t.broken.Store(&err)
		t.of.Log.Debug("output not readable", "execution", t.id, "err", err)
		loop.Sleep(t.ctx, followRetry)
	}
}

// pass gives lines to serve and waits until they are sent. Once serve has them it does not
// return earlier, because the lines are valid only until then.
func (t *stream) pass(batches chan<- batch, lines []handler.Line) error {
	b := batch{lines: lines, sent: make(chan error, 1)}
	select {
	case <-t.ctx.Done():
		return t.ctx.Err()
	case batches <- b:
		return <-b.sent
	}
}

// send writes the lines behind the newest one that was sent.
func (t *stream) send(lines []handler.Line) error {
	for len(lines) > 0 {
		if lines[0].Seq <= t.after {
			lines = lines[1:]
			continue
		}
		n, size := together(lines)
		last := lines[n-1].Seq
		err := t.w.Append(last, size+eventExtra, func(b []byte) []byte { return appendEvent(b, lines[:n]) })
		if err != nil {
			return err
		}
		t.after, lines = last, lines[n:]
	}
	return t.w.Flush()
}

// eventExtra is about how many bytes an event has beside its output.
const eventExtra = 128

// together returns how many of the lines, at least one, share an event, and how many bytes
// of output they have: those at the front that were written to one stream within
// eventTime, up to eventBytes.
func together(lines []handler.Line) (n, size int) {
	for n = 0; n < len(lines) && lines[n].Stream == lines[0].Stream; n++ {
		if n > 0 && (size+len(lines[n].Text) >= eventBytes || lines[n].At.Sub(lines[0].At) > eventTime) {
			break
		}
		size += len(lines[n].Text) + 1
	}
	return n, size
}

// appendEvent appends the data of an event with lines.
func appendEvent(b []byte, lines []handler.Line) []byte {
	event := wire.OutputEvent{Stream: lines[0].Stream, At: lines[0].At}
	b = event.Begin(b)
	for _, l := range lines {
		b = event.Text(b, l.Text)
		if !l.Partial {
			b = event.Text(b, []byte{'\n'})
		}
	}
	return event.End(b)
}

// noReturnCode is the return code of an execution that never became a process.
const noReturnCode = "-1"

// finish writes the last event. It has no id, so that a client that resumes
// after the last line gets it again.
func (t *stream) finish(e *compute.Execution, missing string) error {
	event := wire.StreamEvent{Finished: new(wire.StreamEnd), Missing: missing}
	result := &event.Finished.Job.Result
	result.ReturnCode = noReturnCode
	switch {
	case e == nil:
		deleted := "The execution was deleted."
		result.Error = &deleted
	case e.Kind == compute.KindSelection && e.Status == compute.StatusCompleted:
		result.ReturnCode = "0"
	case e.Ran:
		result.ReturnCode = strconv.Itoa(e.ExitCode)
	}
	if e != nil && e.Status != compute.StatusCompleted {
		why := errorOf(e)
		result.Error = &why
	}
	if err := t.w.Event(event); err != nil {
		return err
	}
	return t.w.Flush()
}
