package openai

import (
	"io"
	"strings"
	"testing"

	"berth/api/edge/limit"
)

// TestStreamsWithoutUsage charges for the events of a stream whose engine says no usage, up
// to what was set aside, and not for one that is an error alone.
func TestStreamsWithoutUsage(t *testing.T) {
	const event = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	for _, test := range []struct {
		stream string
		want   Usage
	}{
		{event + event + "data: [DONE]\n\n", Usage{7, 2}},
		{event + event, Usage{7, 2}},
		{event + event + event + event + "data: [DONE]\n\n", Usage{7, 3}},
		{event + event + `data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}` + "\n\n", Usage{4, 1}},
		{`data: {"error":{"message":"x"}}` + "\n\ndata: [DONE]\n\n", Usage{}},
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			for _, size := range []int{1, 7, eventBuffer} {
				stream, got := strings.ReplaceAll(test.stream, "\n", end), Usage{}
				a := &PublishedAnswer{
					ctx: t.Context(), from: io.NopCloser(strings.NewReader(stream)), buffer: make([]byte, size),
					most: Usage{7, 3}, notify: func(prompt, completion int64) { got = Usage{prompt, completion} },
				}
				if text, err := io.ReadAll(a); err != nil || string(text) != stream {
					t.Errorf("%q became %q, %v", stream, text, err)
				}
				if got != test.want {
					t.Errorf("%q read by %d bytes is charged as %v, want %v", stream, size, got, test.want)
				}
			}
		}
	}
}

// TestWholeAnswersWithoutUsage charges for the text of an answer whose engine says no usage,
// up to what was set aside, and not for an error or garbage.
func TestWholeAnswersWithoutUsage(t *testing.T) {
	for _, test := range []struct {
		answer string
		failed bool
		want   Usage
	}{
		{`{"choices":[{"message":{"content":"12345"}}]}`, false, Usage{7, 2}},
		{`{"choices":[{"text":"1234"},{"text":"5678"}]}`, false, Usage{7, 2}},
		{`{"choices":[{"text":"1234567890123456"}]}`, false, Usage{7, 3}},
		{`{"data":[{"embedding":[1,2]}]}`, false, Usage{7, 0}},
		{`{"choices":[{"text":"1234"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}`, false, Usage{4, 1}},
		{`{"error":{"message":"x"}}`, false, Usage{}},
		{`{"choices":[{"text":"1234"}]}`, true, Usage{}},
		{"not JSON", false, Usage{}},
	} {
		var got Usage
		a := &PublishedAnswer{
			ctx: t.Context(), from: io.NopCloser(strings.NewReader(test.answer)), failed: test.failed,
			most: Usage{7, 3}, notify: func(prompt, completion int64) { got = Usage{prompt, completion} },
		}
		hold := limit.Hold{Budget: limit.NewBudget(1<<20, 1<<20)}
		if text, err := a.Whole(&hold); err != nil || string(text) != test.answer {
			t.Errorf("%q became %q, %v", test.answer, text, err)
		}
		if got != test.want {
			t.Errorf("%q is charged as %v, want %v", test.answer, got, test.want)
		}
	}
}
