package edge

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"berth/api/edge/limit"
	"berth/compute"
)

// TestAmbiguousKeys refuses bodies that an engine could read in another way than the
// node. The node reserves and charges by its own reading.
func TestAmbiguousKeys(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","stream":true,"Stream_Options":{}}`,
		`{"model":"m","stream":true,"Stream":false}`,
		`{"model":"m","stream":false,"stream":true}`,
		`{"model":"m","max_tokens":1000000,"Max_Tokens":1}`,
		`{"model":"m","max_tokens":1000000,"max_to\u212aens":1}`,
		`{"model":"m","\u0073tream":true,"stream":false}`,
		`{"model":"m","MODEL":"other"}`,
		`{"N":1,"n":50,"model":"m"}`,
	} {
		data := []byte(body)
		if err := new(modelBody).parse(&data); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", body, err)
		}
	}
	data := []byte(`{"model":"m","stream":true,"stream_options":{"Include_Usage":false},"n":1,"max_tokens":5,"Other":1}`)
	m := new(modelBody)
	if err := m.parse(&data); err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"01000000-0000-0000-0000-000000000000","stream":true,"stream_options":{"include_usage":true},` +
		`"n":1,"max_tokens":5,"Other":1}`
	if got := m.addressed(data, compute.ExecutionID{UUID: compute.UUID{1}}); string(got) != want {
		t.Errorf("the body becomes %s", got)
	}
}

// TestPrefix holds that the requests of a conversation have one prefix, and others
// another.
func TestPrefix(t *testing.T) {
	of := func(body string) uint64 {
		data := []byte(body)
		var m modelBody
		if err := m.parse(&data); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return m.prefix
	}
	const first = `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}`
	begun := of(first + "]}")
	if got := of(first + `,{"role":"assistant","content":"x"},{"role":"user","content":"b"}]}`); got != begun || got == 0 {
		t.Errorf("the second turn has the prefix %x, the first %x", got, begun)
	}
	for _, other := range []string{
		`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"b"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"t"},{"role":"user","content":"a"}]}`,
		`{"model":"m","messages":[5]}`, `{"model":"m","messages":"a"}`, `{"model":"m","prompt":"a"}`,
	} {
		if of(other) == begun {
			t.Errorf("%s has the same prefix", other)
		}
	}
	if got := of(`{"model":"m","input":"a"}`); got != 0 {
		t.Errorf("without a prompt it is %x", got)
	}
}

// pieces is a stream that is read piece by piece, and then fails or ends.
type pieces struct {
	list []string
	err  error
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.list) == 0 {
		return 0, p.err
	}
	n := copy(to, p.list[0])
	if p.list[0] = p.list[0][n:]; p.list[0] == "" {
		p.list = p.list[1:]
	}
	return n, nil
}

func (p *pieces) Close() error { return nil }

// TestBrokenStreams ends streams in the middle of a line: what there is of it does not reach
// the client, and the lines before it do as they come. A stream that ends by itself is whole.
func TestBrokenStreams(t *testing.T) {
	long := strings.Repeat("x", maxEventLine+1)
	for _, test := range []struct {
		pieces []string
		err    error
		want   []string // Parts that the client has, one after the other.
	}{
		{[]string{"data: 1\n\ndata: {\"a", "b"}, io.ErrUnexpectedEOF, []string{"data: 1\n\n", brokenStream}},
		{[]string{"data: {\"a", "\":1}\n", "\n"}, io.ErrUnexpectedEOF, []string{"data: {\"a\":1}\n", "\n", brokenStream}},
		{[]string{"data: 1\r\n\r\nda"}, engineSilent(1), []string{"data: 1\r\n\r\n", silentStream}},
		{[]string{"data: 1\r\rda"}, io.ErrUnexpectedEOF, []string{"data: 1\r\r", brokenStream}},
		{[]string{"da"}, io.ErrUnexpectedEOF, []string{brokenStream}},
		{nil, io.ErrUnexpectedEOF, []string{brokenStream}},
		{[]string{"data: 1\n\nda", "ta: 2"}, io.EOF, []string{"data: 1\n\n", "data: 2"}},
		{[]string{long, "y\n"}, io.EOF, []string{long, "y\n"}}, // No more than a line's limit is kept.
	} {
		b := &eventBody{from: &pieces{test.pieces, test.err}}
		for _, want := range test.want {
			got := make([]byte, len(want))
			if n, err := io.ReadFull(b, got); err != nil || string(got) != want {
				t.Errorf("%.40q: got %.60q, %v, want %.60q", test.pieces, got[:n], err, want)
			}
			if len(b.ready) > 0 {
				t.Errorf("%.40q: after %.40q there is %.40q", test.pieces, want, b.ready)
			}
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // Readers return it as it is.
			t.Errorf("%.40q: the end is %d, %v", test.pieces, n, err)
		}
	}
}

// TestStreamsWithoutUsage charges for the events of a stream whose engine says no usage, up
// to what was set aside, and not for one that is an error alone.
func TestStreamsWithoutUsage(t *testing.T) {
	const event = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	for _, test := range []struct {
		stream string
		want   tokenUsage
	}{
		{event + event + "data: [DONE]\n\n", tokenUsage{7, 2}},
		{event + event, tokenUsage{7, 2}},
		{event + event + event + event + "data: [DONE]\n\n", tokenUsage{7, 3}},
		{event + event + `data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}` + "\n\n", tokenUsage{4, 1}},
		{`data: {"error":{"message":"x"}}` + "\n\ndata: [DONE]\n\n", tokenUsage{}},
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			for _, size := range []int{1, 7, eventBuffer} {
				stream, got := strings.ReplaceAll(test.stream, "\n", end), tokenUsage{}
				a := &publishedAnswer{
					ctx: t.Context(), from: io.NopCloser(strings.NewReader(stream)), buffer: make([]byte, size),
					most: tokenUsage{7, 3}, notify: func(prompt, completion int64) { got = tokenUsage{prompt, completion} },
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
		want   tokenUsage
	}{
		{`{"choices":[{"message":{"content":"12345"}}]}`, false, tokenUsage{7, 2}},
		{`{"choices":[{"text":"1234"},{"text":"5678"}]}`, false, tokenUsage{7, 2}},
		{`{"choices":[{"text":"1234567890123456"}]}`, false, tokenUsage{7, 3}},
		{`{"data":[{"embedding":[1,2]}]}`, false, tokenUsage{7, 0}},
		{`{"choices":[{"text":"1234"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}`, false, tokenUsage{4, 1}},
		{`{"error":{"message":"x"}}`, false, tokenUsage{}},
		{`{"choices":[{"text":"1234"}]}`, true, tokenUsage{}},
		{"not JSON", false, tokenUsage{}},
	} {
		var got tokenUsage
		a := &publishedAnswer{
			ctx: t.Context(), from: io.NopCloser(strings.NewReader(test.answer)), failed: test.failed,
			most: tokenUsage{7, 3}, notify: func(prompt, completion int64) { got = tokenUsage{prompt, completion} },
		}
		hold := limit.Hold{Budget: limit.NewBudget(maxAnswers, maxAnswers)}
		if text, err := a.whole(&hold); err != nil || string(text) != test.answer {
			t.Errorf("%q became %q, %v", test.answer, text, err)
		}
		if got != test.want {
			t.Errorf("%q is charged as %v, want %v", test.answer, got, test.want)
		}
	}
}

// TestNumbersAreNoTexts refuses numbers that some engines would read, and others not.
func TestNumbersAreNoTexts(t *testing.T) {
	for _, key := range []string{"max_tokens", "max_completion_tokens", "n_predict", "n", "best_of"} {
		for _, value := range []string{`"64"`, `"many"`, "true", "[64]", "{}"} {
			body := fmt.Appendf(nil, `{"model":"m",%q:%s}`, key, value)
			var m modelBody
			if err := m.parse(&body); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s %s: %v", key, value, err)
			}
		}
	}
}

// TestEstimates reserves for as many tokens as a request may get.
func TestEstimates(t *testing.T) {
	for body, want := range map[string]int64{
		`{}`:                                               defaultCompletion,
		`{"max_tokens":5}`:                                 5,
		`{"max_tokens":5.5}`:                               6,
		`{"max_tokens":1e3}`:                               1000,
		`{"max_tokens":-1}`:                                compute.MaxTokens,
		`{"max_tokens":1e300}`:                             compute.MaxTokens,
		`{"max_tokens":1e400}`:                             compute.MaxTokens,
		`{"max_tokens":null}`:                              defaultCompletion,
		`{"max_tokens":5,"n":3}`:                           15,
		`{"max_tokens":5,"n":2,"best_of":4}`:               20,
		`{"max_tokens":5,"max_completion_tokens":7}`:       7,
		`{"n_predict":9}`:                                  9,
		`{"max_tokens":5,"prompt":"a"}`:                    5,
		`{"max_tokens":5,"prompt":["a","b","c"]}`:          15,
		`{"max_tokens":5,"prompt":[1,2,3]}`:                5,
		`{"max_tokens":5,"prompt":[[1,2],[3]],"n":2}`:      20,
		`{"max_tokens":5,"prompt":[]}`:                     5,
		`{"max_tokens":2000000000,"n":2000000000}`:         compute.MaxTokens,
		`{"max_tokens":2000000000,"prompt":["a","b","c"]}`: compute.MaxTokens,
	} {
		whole := []byte(`{"model":"m",` + body[1:])
		if body == "{}" {
			whole = []byte(`{"model":"m"}`)
		}
		var m modelBody
		if err := m.parse(&whole); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if _, got := m.estimate(len(whole), "/completions"); got != want {
			t.Errorf("%s: %d tokens, want %d", body, got, want)
		}
	}
}
