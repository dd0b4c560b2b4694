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
