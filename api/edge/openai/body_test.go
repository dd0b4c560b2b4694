package openai

import (
	"fmt"
	"strings"
	"testing"

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
		if err := new(Body).Parse(&data); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", body, err)
		}
	}
	data := []byte(`{"model":"m","stream":true,"stream_options":{"Include_Usage":false},"n":1,"max_tokens":5,"Other":1}`)
	m := new(Body)
	if err := m.Parse(&data); err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"01000000-0000-0000-0000-000000000000","stream":true,"stream_options":{"include_usage":true},` +
		`"n":1,"max_tokens":5,"Other":1}`
	if got := m.Addressed(data, compute.ExecutionID{UUID: compute.UUID{1}}); string(got) != want {
		t.Errorf("the body becomes %s", got)
	}
}

// TestPrefix holds that the requests of a conversation have one prefix, and others
// another.
func TestPrefix(t *testing.T) {
	of := func(body string) uint64 {
		data := []byte(body)
		var m Body
		if err := m.Parse(&data); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return m.Prefix
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

// TestNumbersAreNoTexts refuses numbers that some engines would read, and others not.
func TestNumbersAreNoTexts(t *testing.T) {
	for _, key := range []string{"max_tokens", "max_completion_tokens", "n_predict", "n", "best_of"} {
		for _, value := range []string{`"64"`, `"many"`, "true", "[64]", "{}"} {
			body := fmt.Appendf(nil, `{"model":"m",%q:%s}`, key, value)
			var m Body
			if err := m.Parse(&body); err == nil || !strings.Contains(err.Error(), key) {
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
		var m Body
		if err := m.Parse(&whole); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if _, got := m.Estimate(len(whole), "/completions"); got != want {
			t.Errorf("%s: %d tokens, want %d", body, got, want)
		}
	}
}

// TestOpenAnswers lowers the answers of requests that do not limit them, until they are as short as they
// are made, and checks the limits that their bodies get.
func TestOpenAnswers(t *testing.T) {
	short := []string{"--max-model-len", "4096"}
	for _, test := range []struct {
		fields string
		path   string
		args   []string
		most   []int64  // At first, and each time after it was lowered.
		bodies []string // Afterwards.
	}{
		{`"prompt":"a"`, "/completions", nil, []int64{32768, 4096, 1024}, []string{
			`{"model":"ID","prompt":"a"}`, `{"max_tokens":4096,"model":"ID","prompt":"a"}`, `{"max_tokens":1024,"model":"ID","prompt":"a"}`,
		}},
		{`"prompt":"a"`, "/completions", short, []int64{4096, 1024}, []string{
			`{"model":"ID","prompt":"a"}`, `{"max_tokens":1024,"model":"ID","prompt":"a"}`,
		}},
		{`"prompt":"a"`, "/completions", []string{"-c", "512"}, []int64{512}, []string{`{"model":"ID","prompt":"a"}`}},
		{`"max_tokens":null,"n":2,"prompt":["a","b"]`, "/completions", short, []int64{4 * 4096, 4 * 1024}, []string{
			`{"model":"ID","max_tokens":null,"n":2,"prompt":["a","b"]}`, `{"model":"ID","max_tokens":1024,"n":2,"prompt":["a","b"]}`,
		}},
		{`"max_completion_tokens":7`, "/chat/completions", short, []int64{7}, []string{`{"model":"ID","max_completion_tokens":7}`}},
		{`"input":"a"`, "/embeddings", short, []int64{0}, []string{`{"model":"ID","input":"a"}`}},
	} {
		body := []byte(`{"model":"m",` + test.fields + "}")
		var m Body
		if err := m.Parse(&body); err != nil {
			t.Fatal(err)
		}
		for i, want := range test.most {
			if got := m.Longest(test.path, test.args); got != want {
				t.Errorf("%s: %d tokens at %d, want %d", test.fields, got, i, want)
			}
			id := compute.ExecutionID{UUID: compute.UUID{1}}
			if sent := strings.Replace(string(m.Addressed(body, id)), id.String(), "ID", 1); sent != test.bodies[i] {
				t.Errorf("sent %s, want %s", sent, test.bodies[i])
			}
			if lowered := m.Lower(test.path, test.args); lowered != (i+1 < len(test.most)) {
				t.Errorf("%s: lowered is %t at %d", test.fields, lowered, i)
			}
		}
	}
}

// TestBriefAnswers names the requests without a limit to which engines make short answers.
func TestBriefAnswers(t *testing.T) {
	for _, test := range []struct {
		fields, path, engine string
		brief                bool
	}{
		{`"prompt":"a"`, "/completions", "vllm", true},
		{`"prompt":"a"`, "/completions", "sglang", true},
		{`"prompt":"a"`, "/completions", "llamacpp", false},
		{`"prompt":"a","max_tokens":null`, "/completions", "vllm", false},
		{`"prompt":"a","max_tokens":9`, "/completions", "vllm", false},
		{`"messages":[]`, "/chat/completions", "vllm", false},
	} {
		body := []byte(`{"model":"m",` + test.fields + "}")
		var m Body
		if err := m.Parse(&body); err != nil {
			t.Fatal(err)
		}
		if got := m.Brief(test.path, test.engine); got != test.brief {
			t.Errorf("%s of %s: %t", test.fields, test.engine, got)
		}
	}
}

// TestMost holds that no more tokens are used than are reserved for a prompt, whatever it is made
// of, and that what is known to be less is reserved as less.
func TestMost(t *testing.T) {
	picture := `{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}`
	inline := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}`
	const frame = 200 // Bytes of JSON around a prompt.
	for _, test := range []struct {
		name, fields string
		args         []string
		least, most  int64
	}{
		{"tokens of one digit", `"prompt":[` + strings.Repeat("1,", 9999) + "1]", nil, 10_000, 10_000},
		{"tokens of six digits", `"prompt":[` + strings.Repeat("128000,", 9999) + "128000]", nil, 10_000, 10_000},
		{"lists of tokens", `"prompt":[` + strings.Repeat("[128000,128000],", 999) + "[128000]]", nil, 1999, 2999},
		{"tokens to embed", `"input":[` + strings.Repeat("128000,", 999) + "128000]", nil, 1000, 1000},
		{"a token for each byte", `"messages":[{"role":"user","content":"` + strings.Repeat("ab", 5000) + `"}]`, nil, 10_000, 10_000},
		{"emoji", `"messages":[{"role":"user","content":"` + strings.Repeat("\U0001fae0", 1000) + `"}]`, nil, 4000, 4000},
		{"a picture", `"messages":[{"role":"user","content":[` + picture + `]}]`, nil, mediaTokens, mediaTokens},
		{"a picture in the body", `"messages":[{"role":"user","content":[` + inline + `]}]`, nil, mediaTokens, mediaTokens},
		{"pictures", `"messages":[{"content":[` + picture + "," + picture + `,{"type":"x"}]}]`, nil, 3 * mediaTokens, 3 * mediaTokens},
		{"a file", `"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]`, nil, mediaTokens, mediaTokens},
		{
			"a long file", `"messages":[{"content":[{"type":"file","file":{"file_data":"` + strings.Repeat("a", 100_000) + `"}}]}]`, nil,
			100_000, 100_000,
		},
		{"parts of text", `"messages":[{"content":[{"type":"text","text":"abc"},"abc"]}]`, nil, 6, 6},
		{
			"text beside a picture", `"messages":[{"content":[{"image_url":"u","text":"` + strings.Repeat("x", 5000) + `"}]}]`, nil,
			mediaTokens + 5000, mediaTokens + 5000,
		},
		{"a short context in one argument", `"messages":[{"content":[` + picture + `]}]`, []string{"-c", "9", "--max_model_len=4096"}, 4096, 4096 - frame - templateTokens},
		{"a short context", `"messages":[{"content":[` + picture + `]}]`, []string{"--max-model-len", "4096"}, 4096, 4096 - frame - templateTokens},
		{
			"prompts of a short context", `"prompt":["` + strings.Repeat("x", 9000) + `","b"]`,
			[]string{"--dtype", "x", "--ctx-size", "4096"},
			8192, 8192 - frame - templateTokens,
		},
		{"a long context", `"prompt":"abc"`, []string{"--context-length", "131072"}, 3, 3},
		{"the context of the model", `"prompt":"` + strings.Repeat("x", 9000) + `"`, []string{"--ctx-size", "0"}, 9000, 9000},
	} {
		body := []byte(`{"model":"m","max_tokens":7,` + test.fields + "}")
		var m Body
		if err := m.Parse(&body); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		prompt, completion := m.Most(len(body), "/completions", test.args)
		if prompt < test.least || prompt > test.most+frame+templateTokens || completion%7 != 0 {
			t.Errorf("%s: %d and %d tokens, want %d to %d", test.name, prompt, completion, test.least, test.most+frame+templateTokens)
		}
	}
}
