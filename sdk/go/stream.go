package berth

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The limits of one stream.
const (
	maxEventBytes = 4 << 20
	// streamIdle is how long a stream may be silent: nodes send a comment
	// every 15 s, so a silent one is gone.
	streamIdle = 40 * time.Second
)

// Event is one event of the stream of an execution: a piece of output, or its
// end.
type Event struct {
	Seq      uint64    // Rises; resume behind it.
	Stderr   bool      // Written to the standard error, or Berth's own words.
	At       time.Time // When its first line was written; zero from an older node.
	Content  string    // The output.
	Finished *Finished // Set on the last event of all.
}

// Finished is how the stream says that the execution has ended.
type Finished struct {
	ReturnCode string  // A number in text, "-1" when no process ended.
	Error      *string // Why it ended, when not by itself.
	Missing    string  // Why output may be missing before this event; mostly "".
}

// errSilent ends a connection that carries nothing any more.
var errSilent = errors.New("the stream went silent")

// Stream yields the events of an execution in order, beginning behind sequence
// number after, until the last one. When the node that serves it goes away the
// stream resumes at another one, without a gap or a repeat. It ends with an
// error when ctx ends, the API refuses, or no address serves for RetryFor. One
// that kept a quiet stream alive for longer than it may be silent has served.
func (c *Client) Stream(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		follower := &follower{client: c, id: id, seq: after, yield: yield}
		tries := c.newTries()
		renewed := false
		for {
			before, used := follower.seq, c.token.get()
			retry, err := follower.connect(ctx, tries.addr())
			if follower.done {
				return
			}
			if !renewed {
				if renewed, err = c.renew(ctx, used, err); renewed {
					continue
				}
			}
			if follower.seq > before || follower.lived > streamIdle {
				tries.succeeded()
				renewed = false
			}
			if !retry || ctx.Err() != nil || !tries.next(ctx, err) {
				yield(Event{}, fmt.Errorf("stream %s: %w", id, c.unreachable(err)))
				return
			}
		}
	}
}

// follower is where one stream stands over its connections.
type follower struct {
	client *Client
	id     string
	seq    uint64 // The newest event that was yielded.
	done   bool   // The last event was yielded, or the caller wants no more.
	yield  func(Event, error) bool

	lived time.Duration // From the beginning of the last connection to the last byte on it.
}

// connect follows the stream at addr until it ends there. The error is never
// nil unless done; retry says whether another address may go on.
func (f *follower) connect(ctx context.Context, addr string) (retry bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.lived = 0
	alarm := time.AfterFunc(streamIdle, func() { cancel(errSilent) })
	defer alarm.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr+"/api/v1/stream/"+url.PathEscape(f.id), nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "identity") // Compressing lines as they come takes longer than sending them.
	req.Header.Set("Last-Event-ID", strconv.FormatUint(f.seq, 10))
	f.client.identify(req.Header)
	resp, err := f.client.cfg.HTTP.Do(req)
	if err != nil {
		return true, err
	}
	f.client.contact.made.Store(true)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxEventBytes))
		if err != nil {
			return true, err
		}
		return temporary(resp.StatusCode), errorOf(resp.StatusCode, resp.Header, body)
	}
	began := f.client.cfg.Now()
	err = f.read(resp.Body, func() {
		alarm.Reset(streamIdle)
		f.lived = f.client.cfg.Now().Sub(began)
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return true, err
}

// read yields what the connection carries; alive is called for every line.
func (f *follower) read(body io.Reader, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEventBytes)
	var seq uint64
	var data []byte
	for lines.Scan() {
		alive()
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(lines.Bytes()) == 0:
			if err := f.dispatch(seq, data); err != nil || f.done {
				return err
			}
			seq, data = 0, data[:0] // The last event has no number of its own.
		case string(field) == "id":
			if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				seq = n
			}
		case string(field) == "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// dispatch yields one event. It drops events that were yielded before a reconnection,
// and events of a kind that this client does not know.
func (f *follower) dispatch(seq uint64, data []byte) error {
	if len(data) == 0 || (seq != 0 && seq <= f.seq) {
		return nil
	}
	body, err := decodeEvent(data)
	if err != nil {
		return fmt.Errorf("decode event %d: %w", seq, err)
	}
	f.seq = max(f.seq, seq)
	event := Event{Seq: seq}
	switch {
	case body.Finished != nil:
		result := body.Finished.Job.Result
		event.Finished = &Finished{ReturnCode: result.ReturnCode, Error: result.Error, Missing: body.Missing}
	case body.Output != nil:
		if body.At != nil {
			event.At = *body.At
		}
		event.Content, event.Stderr = body.Output.Content, body.Stream == "stderr" || body.Stream == "system"
	default:
		return nil
	}
	f.done = !f.yield(event, nil) || event.Finished != nil
	return nil
}
