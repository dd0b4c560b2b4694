package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// randomJSON writes a JSON value with odd spaces, escapes and texts that look like structure.
func randomJSON(r *rand.Rand, out *bytes.Buffer, depth int) {
	space := func() { out.WriteString([]string{"", "", " ", "\n\t", "\r "}[r.IntN(5)]) }
	texts := []string{
		`""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"}]"`, `"{\"a\":[1,"`, `"\u0022"`, `"ä,:"`, `"model"`, `"\u006d"`, "\"\xff\"",
	}
	space()
	defer space()
	switch kind := r.IntN(8); {
	case depth > 4 || kind < 2:
		out.WriteString(texts[r.IntN(len(texts))])
	case kind < 5:
		out.WriteString([]string{"0", "-1.5e+3", "true", "false", "null", "12345678901234567890"}[r.IntN(6)])
	case kind == 5:
		out.WriteByte('[')
		for i := range r.IntN(4) {
			if i > 0 {
				out.WriteByte(',')
			}
			randomJSON(r, out, depth+1)
		}
		space()
		out.WriteByte(']')
	default:
		out.WriteByte('{')
		for i := range r.IntN(4) {
			if i > 0 {
				out.WriteByte(',')
			}
			space()
			out.WriteString(texts[r.IntN(len(texts))])
			space()
			out.WriteByte(':')
			randomJSON(r, out, depth+1)
		}
		space()
		out.WriteByte('}')
	}
}

// TestFieldsAsPackageJSON finds the members of random values where package json finds them.
func TestFieldsAsPackageJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var buf bytes.Buffer
		randomJSON(r, &buf, 0)
		text := buf.Bytes()
		if !json.Valid(text) {
			t.Fatalf("%q is not valid", text)
		}
		var got, want []string
		eachField(text, func(key string, from, to int) bool {
			got = append(got, fmt.Sprintf("%q=%s", strings.ToValidUTF8(key, "\ufffd"), text[from:to]))
			return true
		})
		eachElement(text, func(from, to int) bool {
			got = append(got, string(text[from:to]))
			return true
		})
		d := json.NewDecoder(bytes.NewReader(text))
		first, err := d.Token()
		for open, is := first.(json.Delim); is && err == nil && d.More(); {
			var value json.RawMessage
			member := ""
			if open == '{' {
				var key json.Token
				key, err = d.Token()
				member = fmt.Sprintf("%q=", key)
			}
			if err == nil {
				err = d.Decode(&value)
			}
			want = append(want, member+string(value))
		}
		if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("%q has %q, want %q, %v", text, got, want, err)
		}
	}
}

// TestFieldsStop ends a visit after the first member.
func TestFieldsStop(t *testing.T) {
	n := 0
	eachField([]byte(`{"a":1,"b":2}`), func(string, int, int) bool { n++; return false })
	eachElement([]byte(`[1,2]`), func(int, int) bool { n++; return false })
	if n != 2 {
		t.Errorf("%d members are visited, want 2", n)
	}
}

// BenchmarkParse reads short bodies and long ones.
func BenchmarkParse(b *testing.B) {
	for _, size := range []int{10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := []byte(`{"model":"m","stream":true,"max_tokens":10,"messages":[{"role":"user","content":"` +
				strings.Repeat("word ", size/5) + `"}]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for range b.N {
				data := body
				if err := new(Body).Parse(&data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
