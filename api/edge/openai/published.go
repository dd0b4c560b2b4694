package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"berth/api/edge/limit"
	"berth/compute"
)

// Limits and estimates of answers.
const (
	eventBuffer    = 4 << 10  // Bytes for each stream.
	maxWholeAnswer = 64 << 20 // Bytes of an answer that is not a stream.
	maxEventLine   = 4 << 20  // Bytes of a line that is read for its usage.
	usualPerToken  = 4        // Bytes of a body or of a text: the usual number.
)

// Reservation is the hold of credits for one request. One of its methods ends it;
// later calls do nothing.
type Reservation interface {
	// Settle charges for what was used, and returns once that is committed. The charge
	// does not depend on ctx, which only ends the wait.
	Settle(ctx context.Context, prompt, completion int64) error
	// Cancel charges nothing.
	Cancel()
}

// PublishedAnswer makes the answer of an engine that of a published model: the model has
// its id, and the end follows once the usage is charged.
type PublishedAnswer struct {
	ctx      context.Context //nolint:containedctx // Lives for the request.
	reserved Reservation
	notify   func(prompt, completion int64) // Gets what was used.

	from   io.ReadCloser
	was    []byte // The deployment's id, in quotes,
	is     []byte // and that of the model.
	chunk  []byte // The part of a read that is not cut into lines yet.
	line   []byte // A line that has not ended.
	ready  []byte // The part of out that is not read yet.
	out    []byte
	buffer []byte
	err    error

	used    Usage
	settled bool
	failed  bool // The engine answered with an error.

	events int64 // Events of the stream: about as many as tokens.
	most   Usage // Charged for an answer whose engine says no usage.
}

// Usage is an engine's report about tokens.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// NewPublishedAnswer returns the answer of an engine, from, to a request of size bytes. The engine
// knows the model as deployment, and clients by its id, model. An engine that says no usage is
// believed to have used at most completion tokens. notify gets what is charged for.
func NewPublishedAnswer(
	ctx context.Context, from io.ReadCloser, deployment compute.ExecutionID, model string, reserved Reservation,
	size int, completion int64, notify func(prompt, completion int64),
) *PublishedAnswer {
	return &PublishedAnswer{
		ctx: ctx, reserved: reserved, notify: notify, from: from, buffer: make([]byte, eventBuffer),
		most: Usage{int64(size / usualPerToken), completion},
		was:  []byte(strconv.Quote(deployment.String())), is: []byte(strconv.Quote(model)),
	}
}

// AtMost has an engine that says no usage be believed to have used at most so many tokens of the
// prompt: what was set aside for it.
func (a *PublishedAnswer) AtMost(prompt int64) { a.most.Prompt = min(a.most.Prompt, prompt) }

// Fail says that the engine answered with an error, which is free.
func (a *PublishedAnswer) Fail() {
	a.failed = true
	a.reserved.Cancel()
}

// Read reads whole lines of the stream.
func (a *PublishedAnswer) Read(p []byte) (int, error) {
	for len(a.ready) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		a.fill()
	}
	n := copy(p, a.ready)
	a.ready = a.ready[n:]
	return n, nil
}

// fill reads more of the engine's answer until a line is whole, or it ends.
func (a *PublishedAnswer) fill() {
	if len(a.chunk) == 0 {
		n, err := a.from.Read(a.buffer)
		a.chunk = a.buffer[:n]
		if n == 0 && err != nil {
			a.end(err)
			return
		}
	}
	a.ready = a.out[:0]
	for a.err == nil && len(a.chunk) > 0 {
		end := lineEnd(a.chunk)
		if end == 0 {
			a.line = append(a.line, a.chunk...)
			a.chunk = nil
			if len(a.line) > maxEventLine { // No engine sends such a line.
				a.ready, a.line = append(a.ready, a.line...), nil
			}
			break
		}
		line := a.chunk[:end]
		if len(a.line) > 0 {
			a.line = append(a.line, line...)
			line = a.line
		}
		if len(a.ready) > 0 && isDone(line) {
			a.line = a.line[:max(len(a.line)-end, 0)]
			break // It waits for the charge, and nothing before it does.
		}
		a.chunk = a.chunk[end:]
		a.pass(line)
		a.line = a.line[:0]
	}
	a.out = a.ready
}

// lineEnd returns the bytes of the first line of a stream with its end: \n, \r\n or \r.
// It returns 0 for one that has not ended. The \n of an end that is split over two reads is
// a line of its own, which changes nothing.
func lineEnd(data []byte) int {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 {
		return bytes.IndexByte(data, '\r') + 1
	}
	if at := bytes.IndexByte(data[:end-1], '\r'); at >= 0 && at < end-2 {
		return at + 1
	}
	return end
}

// isDone reports whether a line is the end of a stream.
func isDone(line []byte) bool {
	data, is := bytes.CutPrefix(line, []byte("data:"))
	return is && bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]"))
}

// pass makes a line ready. That of the end waits until the usage is charged.
func (a *PublishedAnswer) pass(line []byte) {
	if isDone(line) {
		a.count()
		if err := a.settle(); err != nil {
			a.err = err
			return
		}
	} else if data, is := bytes.CutPrefix(line, []byte("data:")); is {
		if bytes.Contains(data, []byte(`"choices"`)) { // Else it is an error, or nothing of the answer.
			a.events++
		}
		a.read(bytes.TrimSpace(data))
		line = renamed(line, a.was, a.is)
	}
	a.ready = append(a.ready, line...)
}

// end ends the stream.
func (a *PublishedAnswer) end(err error) {
	a.err = err
	if err != io.EOF { //nolint:errorlint // Readers return it as it is.
		return
	}
	a.count()
	if err := a.settle(); err != nil {
		a.err = err
		return
	}
	a.ready, a.line = renamed(a.line, a.was, a.is), nil
}

// read takes the usage from an answer, or from a part of one.
func (a *PublishedAnswer) read(data []byte) {
	if !bytes.Contains(data, []byte(`"usage"`)) {
		return
	}
	var part struct {
		Usage *Usage `json:"usage"`
	}
	if json.Unmarshal(data, &part) == nil && part.Usage != nil {
		a.used = Usage{bounded(part.Usage.Prompt), bounded(part.Usage.Completion)}
	}
}

func bounded(n int64) int64 { return min(max(n, 0), compute.MaxTokens) }

// count takes the events for the tokens of a stream whose engine has said no usage, up to
// what was set aside.
func (a *PublishedAnswer) count() {
	if a.used == (Usage{}) && a.events > 0 {
		a.used = Usage{a.most.Prompt, min(a.events, a.most.Completion)}
	}
}

// settle charges for what was used, once.
func (a *PublishedAnswer) settle() error {
	if a.settled {
		return nil
	}
	a.settled = true
	a.notify(a.used.Prompt, a.used.Completion)
	if a.reserved == nil {
		return nil
	}
	if a.used == (Usage{}) {
		a.reserved.Cancel()
		return nil
	}
	return a.reserved.Settle(a.ctx, a.used.Prompt, a.used.Completion)
}

// Close ends the engine's work. A client that left the stream is charged for the usage
// that the engine reported, or else for the events it was sent, up to its hold. An
// answer that a replica did not finish is free.
func (a *PublishedAnswer) Close() error {
	if !a.settled {
		if left := a.err == nil || a.ctx.Err() != nil; left {
			a.count()
		}
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		a.ctx = gone // Nobody waits for it.
		_ = a.settle()
	}
	return a.from.Close()
}

// Whole reads an answer that is not a stream into reserved memory, charges for it and
// returns it. One that the node has no memory for is free.
func (a *PublishedAnswer) Whole(hold *limit.Hold) ([]byte, error) {
	data, err := hold.ReadAll(a.from, maxWholeAnswer)
	switch {
	case IsTimeout(err), limit.IsManyAnswers(err):
		return nil, err
	case a.ctx.Err() != nil: // The client has left, and pays for no answer.
		return nil, a.ctx.Err()
	case errors.Is(err, limit.ErrTooLarge):
		return nil, compute.Errorf(compute.CodeUnavailable, "The answer has more than %d bytes.", maxWholeAnswer).
			Named("answer_too_large")
	case err != nil:
		return nil, compute.Errorf(compute.CodeUnavailable, "The replica ended in the middle of its answer.").
			Named("replica_failed").Retry(0).Because(err)
	}
	a.read(data)
	if !a.failed {
		a.measure(data)
	}
	if err := a.settle(); err != nil {
		return nil, err
	}
	return renamed(data, a.was, a.is), nil
}

// measure estimates the tokens of a whole answer from sizes if its engine reported no
// usage. It counts a token for 4 bytes of the request's body, and one for 4 bytes of the
// texts of its choices, up to the hold. An answer without choices or embeddings is free.
func (a *PublishedAnswer) measure(data []byte) {
	if a.used != (Usage{}) {
		return
	}
	var answer struct {
		Data    []json.RawMessage `json:"data"`
		Choices []struct {
			Text    string `json:"text"`
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &answer) != nil || len(answer.Choices)+len(answer.Data) == 0 {
		return
	}
	size := 0
	for _, c := range answer.Choices {
		size += len(c.Text) + len(c.Message.Content) + len(c.Message.Reasoning)
	}
	a.used = Usage{a.most.Prompt, min(int64((size+usualPerToken-1)/usualPerToken), a.most.Completion)}
}

// renamed returns JSON in which the members named model that are was have the value is.
// Text in which the same bytes occur is not touched: its quotes are escaped.
func renamed(data, was, is []byte) []byte {
	const name = `"model"`
	if !bytes.Contains(data, was) {
		return data
	}
	var out []byte
	for {
		at := bytes.Index(data, []byte(name))
		if at < 0 {
			return append(out, data...)
		}
		out = append(out, data[:at+len(name)]...)
		data = data[at+len(name):]
		value := bytes.TrimLeft(data, " \t")
		if value = bytes.TrimPrefix(value, []byte(":")); len(value) < len(data) {
			value = bytes.TrimLeft(value, " \t")
			if rest, ok := bytes.CutPrefix(value, was); ok {
				out = append(append(out, data[:len(data)-len(value)]...), is...)
				data = rest
			}
		}
	}
}
