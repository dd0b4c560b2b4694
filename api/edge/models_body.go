package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/wire"
	"berth/compute"
)

// prefixBytes is how much of a conversation decides which replica gets it: its system
// prompt and the beginning of its first message.
const prefixBytes = 1024

// modelBody has the fields of a request to a model that the node reads.
type modelBody struct {
	Model  string
	Stream bool

	options bool // It has stream_options.

	// Estimates need these fields; the engine checks them.
	maxTokens, maxCompletion, nPredict, n, bestOf int64

	prefix  uint64
	prompts int64 // Each gets answers of its own.
}

// parse reads a body. A stream that asks for no usage gets it all the same, as its last
// chunk: nothing else of the body changes.
func (m *modelBody) parse(body *[]byte) error {
	if err := m.read(*body); err != nil {
		return err
	}
	if m.Model == "" {
		return compute.Errorf(compute.CodeInvalid, "You must provide a model parameter.").Named("missing_model")
	}
	if m.Stream && !m.options {
		at := bytes.IndexByte(*body, '{') + 1
		out := make([]byte, 0, len(*body)+len(usageOption))
		out = append(append(append(out, (*body)[:at]...), usageOption...), (*body)[at:]...)
		*body = out
	}
	return nil
}

// read reads the fields of a body. It refuses one that has a key of modelBody twice or in
// another case: some programs ignore the case and others do not, so that the engine's work
// would be neither reserved nor charged.
func (m *modelBody) read(body []byte) error {
	if !json.Valid(body) || body[skipSpace(body, 0)] != '{' {
		return notJSON(json.Unmarshal(body, new(struct{})))
	}
	var seen []string
	var start, prompt []byte
	var fault error
	eachField(body, func(key string, from, to int) bool {
		known := knownKey(key)
		switch value := body[from:to]; {
		case known == "":
			return true
		case key != known || slices.Contains(seen, known):
			fault = compute.Errorf(compute.CodeInvalid, "The body has the key %s twice, or in another case.", known).
				Named("duplicate_parameter")
		case known == "messages":
			start = value
		case known == "prompt":
			prompt = value
		default:
			fault = m.set(known, value)
		}
		seen = append(seen, known)
		return fault == nil
	})
	if start == nil {
		start = prompt
	}
	if start != nil {
		start = opening(start)
		h := fnv.New64a()
		_, _ = h.Write(start[:min(len(start), prefixBytes)])
		m.prefix = h.Sum64() | 1
	}
	m.prompts = promptsOf(prompt)
	return fault
}

// set sets the field of a key from its value.
func (m *modelBody) set(key string, value []byte) (err error) {
	switch key {
	case "model":
		err = json.Unmarshal(value, &m.Model)
	case "stream":
		err = json.Unmarshal(value, &m.Stream)
	case "stream_options":
		m.options = true
	default:
		if !isNumber(value) { // Some engines read numbers in texts, which would be neither reserved nor charged.
			err = json.Unmarshal(value, new(float64))
		} else {
			*m.count(key) = countOf(value)
		}
	}
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		wrong.Field = key
		return notJSON(wrong)
	}
	return err
}

// count returns where a number of the body is kept.
func (m *modelBody) count(key string) *int64 {
	switch key {
	case "max_tokens":
		return &m.maxTokens
	case "max_completion_tokens":
		return &m.maxCompletion
	case "n_predict": // As llama.cpp has it.
		return &m.nPredict
	case "n":
		return &m.n
	}
	return &m.bestOf
}

// knownKey returns the key of modelBody that a key is, in whatever case; "" for none.
func knownKey(key string) string {
	for _, known := range [...]string{
		"model", "stream", "stream_options", "messages", "prompt",
		"max_tokens", "max_completion_tokens", "n_predict", "n", "best_of",
	} {
		if strings.EqualFold(key, known) {
			return known
		}
	}
	return ""
}

// promptsOf returns how many prompts a request has: a list of texts or of lists of tokens
// is as many, and a list of tokens is one.
func promptsOf(prompt []byte) int64 {
	n, tokens := int64(0), false
	eachElement(prompt, func(from, _ int) bool {
		tokens = n == 0 && prompt[from] != '"' && prompt[from] != '['
		n++
		return !tokens
	})
	if tokens {
		return 1
	}
	return max(n, 1)
}

func notJSON(err error) error {
	return compute.Errorf(compute.CodeInvalid, "The body is not a JSON object of the OpenAI API: %s.", jsonFault(err)).
		Named("invalid_json")
}

// opening returns the messages up to the first one of the user, which each request of a
// conversation repeats. It returns anything but a list of messages unchanged.
func opening(messages []byte) []byte {
	out := messages
	eachElement(messages, func(from, to int) bool {
		if messages[from] != '{' {
			return false
		}
		end := to >= prefixBytes
		eachField(messages[from:to], func(key string, at, till int) bool {
			end = end || key == "role" && string(messages[from+at:from+till]) == `"user"`
			return !end
		})
		if end {
			out = messages[:to]
		}
		return !end
	})
	return out
}

const usageOption = `"stream_options":{"include_usage":true},`

// jsonFault describes the fault of a body without repeating any of it.
func jsonFault(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return e.Field + " is a " + e.Value
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return e.Error()
	}
	return "it cannot be read"
}

// writeModelAnswer passes the answer of an engine on as the client reads it.
func (c *modelCall) writeModelAnswer(answer *http.Response, end func()) {
	h := &c.ctx.Response
	kind := answer.Header.Get("Content-Type")
	h.Header.SetNoDefaultContentType(true)
	h.Header.Set("Content-Type", kind)
	h.Header.Set("X-Request-Id", c.r.id)
	h.Header.Set("X-Content-Type-Options", "nosniff")
	h.Header.Set("Cache-Control", "no-store")
	if after := engineRetryAfter(answer); after != "" {
		h.Header.Set("Retry-After", after)
	}
	c.ctx.SetStatusCode(answer.StatusCode)
	endWithEvent(answer)
	// The header is sent with the first whole line, most of which has come: apart it would wake the client twice.
	h.SetBodyStream(&connection.AnswerBody{From: answer.Body, Conn: c.ctx.Conn(), End: end}, int(answer.ContentLength))
	c.observe(c.r, c.r.route.Method, answer.StatusCode, c.took(c.r))
	c.observeModel(answer.StatusCode)
}

// engineRetryAfter returns in how many seconds a busy engine wants the request again, "" if it
// does not say.
func engineRetryAfter(answer *http.Response) string {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return ""
	}
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(seconds, 10)
}

// brokenStream is the event of a stream whose replica has ended.
const brokenStream = "\n\ndata: {\"error\":{\"message\":\"The replica ended in the middle of its answer: " +
	"repeat the request.\"," +
	"\"type\":\"server_error\",\"param\":null,\"code\":\"replica_failed\"}}\n\n"

// silentStream is the event of a stream whose engine was silent for too long.
const silentStream = "\n\ndata: {\"error\":{\"message\":\"The engine sent nothing for too long: " +
	"repeat the request.\"," +
	"\"type\":\"server_error\",\"param\":null,\"code\":\"" + engineTimeout + "\"}}\n\n"

// endWithEvent has the stream of an answer, if it is one, end with an error event where it is
// cut off.
func endWithEvent(answer *http.Response) {
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body = &eventBody{from: answer.Body}
	}
}

// eventBody is a stream of events that ends with an error event if its replica ends. It passes
// on whole lines as they come: the error event could not follow a part of one. It has no memory
// of its own while reads end with lines, as they usually do.
type eventBody struct {
	from  io.ReadCloser
	line  []byte // The beginning of a line, of at most maxEventLine bytes.
	out   []byte
	ready []byte // The part of out that is to be passed on,
	err   error  // and then this, if not nil.
}

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if n := b.fill(p); n > 0 {
			return n, nil
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// fill reads once from the engine, into p. It returns how much of p is passed on: nothing if
// that is in ready.
func (b *eventBody) fill(p []byte) int {
	n, err := b.from.Read(p)
	data := p[:n]
	end := bytes.LastIndexAny(data, "\r\n") + 1
	if len(b.line) == 0 && end > 0 && err == nil {
		b.line = append(b.line, data[end:]...)
		return end
	}
	b.out = b.out[:0]
	if end > 0 || len(b.line)+n > maxEventLine || errors.Is(err, io.EOF) {
		b.out = append(b.out, b.line...)
		b.line = b.line[:0]
		if end == 0 || errors.Is(err, io.EOF) {
			end = n
		}
	}
	b.out = append(b.out, data[:end]...)
	b.line = append(b.line, data[end:]...)
	if err != nil {
		b.err = io.EOF
	}
	switch {
	case isEngineTimeout(err):
		b.out = append(b.out, silentStream...)
	case err != nil && !errors.Is(err, io.EOF):
		b.out = append(b.out, brokenStream...)
	}
	b.ready = b.out
	return 0
}

// Close ends the engine's work.
func (b *eventBody) Close() error { return b.from.Close() }

// statusClientLeft is the status by which a request is counted whose client did not wait for
// the answer. Others use it too; no client sees it.
const statusClientLeft = 499

// failModel answers an error in the envelope of OpenAI.
func (c *modelCall) failModel(err error) {
	f := failureOf(err)
	switch {
	case isEngineTimeout(err):
		f.status, f.retryAfter = fasthttp.StatusGatewayTimeout, ""
	case c.left:
		f.status, f.retryAfter = statusClientLeft, ""
	}
	if f.status >= fasthttp.StatusInternalServerError {
		c.logFailure(c.r, f.status, err)
	}
	type fault struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	out := fault{Message: "Internal error.", Type: "invalid_request_error", Code: "internal_error"}
	if e, ok := f.body.(wire.Error); ok {
		out.Message, out.Code = e.Detail, e.Code
	}
	switch {
	case f.status == fasthttp.StatusUnauthorized:
		out.Type, out.Code = "authentication_error", "invalid_api_key"
	case f.status == fasthttp.StatusTooManyRequests:
		out.Type = "rate_limit_error"
	case f.status >= fasthttp.StatusInternalServerError:
		out.Type = "server_error"
	case out.Code == "model_not_found":
		model := "model"
		out.Param = &model
	}
	data, encodeErr := json.Marshal(map[string]any{"error": out})
	if encodeErr != nil {
		data = []byte(`{"error":{"message":"Internal error.","type":"server_error","param":null,"code":null}}`)
	}
	h := &c.ctx.Response
	h.Header.Set("X-Request-Id", c.r.id)
	if f.retryAfter != "" {
		h.Header.Set("Retry-After", f.retryAfter)
	}
	c.ctx.SetStatusCode(f.status)
	c.ctx.SetContentType("application/json")
	h.SetBodyRaw(data)
	c.observe(c.r, c.r.route.Method, f.status, c.took(c.r))
	c.observeModel(f.status)
}

// modelRates counts requests to models by key or user, in buckets that fill evenly.
type modelRates struct {
	mu sync.Mutex

	buckets map[compute.UUID]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets bounds the keys that are counted: full buckets are forgotten beyond it.
const maxBuckets = 10_000

// take takes one request of an owner, and returns how many are left and when the
// bucket is full again; less than none, and when there is one again.
func (m *modelRates) take(owner compute.UUID, perMinute int, now time.Time) (left int, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rate, full := float64(perMinute)/time.Minute.Seconds(), float64(perMinute)
	b, ok := m.buckets[owner]
	if !ok {
		b = bucket{full, now}
	}
	b.left = min(full, b.left+rate*max(now.Sub(b.at).Seconds(), 0))
	b.at = now
	if b.left < 1 {
		m.buckets[owner] = b
		return -1, time.Duration((1 - b.left) / rate * float64(time.Second))
	}
	b.left--
	if len(m.buckets) >= maxBuckets {
		for id, other := range m.buckets {
			if other.left+rate*now.Sub(other.at).Seconds() >= full {
				delete(m.buckets, id)
			}
		}
	}
	m.buckets[owner] = b
	return int(b.left), time.Duration((full - b.left) / rate * float64(time.Second))
}
