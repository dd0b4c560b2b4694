package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/compute"
)

// Estimates of requests, for turns.
const (
	bytesPerToken     = 3    // The fewest in an ordinary body.
	defaultCompletion = 1024 // Tokens of an answer whose request gives no limit.
	addressedMore     = 64   // Bytes by which a body may grow that gets its engine's name for the model.
)

// prefixBytes is how much of a conversation decides which replica gets it: its system
// prompt and the beginning of its first message.
const prefixBytes = 1024

// embeddings is the path of requests that have no answers in tokens.
const embeddings = "/embeddings"

// Body has the fields of a request to a model that the node reads.
type Body struct {
	Model  string
	Stream bool

	options bool // It has stream_options.

	// Estimates need these fields; the engine checks them.
	maxTokens, maxCompletion, nPredict, n, bestOf int64

	given   bool  // It has max_tokens, which may be null.
	lowered int64 // The limit of each answer that the body gets; 0 for none.

	Prefix  uint64
	prompts int64 // Each gets answers of its own.
	inputs  int64 // Texts to embed.
	most    int64 // Tokens of all prompts at most.
}

// Parse reads a body. A stream that asks for no usage gets it all the same, as its last
// chunk: nothing else of the body changes.
func (m *Body) Parse(body *[]byte) error {
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

// read reads the fields of a body. It refuses one that has a key of Body twice or in
// another case: some programs ignore the case and others do not, so that the engine's work
// would be neither reserved nor charged.
func (m *Body) read(body []byte) error {
	if !json.Valid(body) || body[skipSpace(body, 0)] != '{' {
		return notJSON(json.Unmarshal(body, new(struct{})))
	}
	var seen []string
	var start, prompt, input []byte
	var fault error
	m.most = int64(len(body)) + templateTokens
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
			m.most += mediaOf(value)
		case known == "prompt":
			prompt = value
			m.most += tokensOf(value) - int64(len(value))
		case known == "input":
			input = value
			m.most += tokensOf(value) - int64(len(value))
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
		m.Prefix = h.Sum64() | 1
	}
	m.prompts, m.inputs = promptsOf(prompt), promptsOf(input)
	m.given = slices.Contains(seen, "max_tokens")
	return fault
}

// set sets the field of a key from its value.
func (m *Body) set(key string, value []byte) (err error) {
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
func (m *Body) count(key string) *int64 {
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

// knownKey returns the key of Body that a key is, in whatever case; "" for none.
func knownKey(key string) string {
	for _, known := range [...]string{
		"model", "stream", "stream_options", "messages", "prompt", "input",
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

// Estimate returns how many tokens a request usually needs at most.
func (m *Body) Estimate(body int, path string) (prompt, completion int64) {
	return int64(body/bytesPerToken) + 1, m.completions(path, defaultCompletion)
}

// limit returns the most tokens that a request wants of each answer, 0 if it does not say.
func (m *Body) limit() int64 { return max(m.maxTokens, m.maxCompletion, m.nPredict) }

// completions returns the most tokens of all answers, where one without a limit has at most unlimited.
func (m *Body) completions(path string, unlimited int64) int64 {
	if path == embeddings {
		return 0
	}
	limit := cmp.Or(m.limit(), unlimited)
	for _, times := range [...]int64{max(m.n, m.bestOf, 1), m.prompts} {
		limit = min(limit, compute.MaxTokens) * min(max(times, 1), compute.MaxTokens)
	}
	return min(limit, compute.MaxTokens)
}

// isNumber reports whether a value of JSON is a number.
func isNumber(text []byte) bool { return text[0] == '-' || text[0] >= '0' && text[0] <= '9' }

// countOf returns a number of a request, rounded up. It returns the largest number for one
// below 0, which some engines take as unlimited.
func countOf(text []byte) int64 {
	n, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), n == 0:
		return 0
	case n < 0 || n > float64(compute.MaxTokens):
		return compute.MaxTokens
	}
	return int64(math.Ceil(n))
}

// Addressed returns a body whose model is a deployment: the name by which its engine
// knows it. A stream says its usage, and answers have the limit to which they were lowered.
// Nothing else changes.
func (m *Body) Addressed(body []byte, deployment compute.ExecutionID) []byte {
	out, done := make([]byte, 0, len(body)+addressedMore), 0
	limited := m.lowered == 0
	eachField(body, func(key string, from, to int) bool {
		var text string
		switch {
		case key == "model":
			text = strconv.Quote(deployment.String())
		case key == "stream_options" && m.Stream:
			text = withUsage(body[from:to])
		case key == "max_tokens" && !limited: // It is null or 0.
			text, limited = strconv.FormatInt(m.lowered, 10), true
		default:
			return true
		}
		out = append(append(out, body[done:from]...), text...)
		done = to
		return true
	})
	out = append(out, body[done:]...)
	if !limited {
		at := bytes.IndexByte(out, '{') + 1
		out = slices.Insert(out, at, fmt.Appendf(nil, `"max_tokens":%d,`, m.lowered)...)
	}
	return out
}

// withUsage returns stream options that ask for the usage.
func withUsage(options []byte) string {
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(options, &all); err != nil || all == nil {
		all = make(map[string]json.RawMessage)
	}
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, "include_usage") })
	all["include_usage"] = json.RawMessage("true")
	data, err := json.Marshal(all)
	if err != nil {
		return `{"include_usage":true}`
	}
	return string(data)
}
