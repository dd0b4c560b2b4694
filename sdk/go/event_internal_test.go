package berth

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzDecodeEvent has events decoded as encoding/json does it.
func FuzzDecodeEvent(f *testing.F) {
	for _, seed := range []string{
		`{"output":{"content":"one\ntwo \"three\" \\ \u001b[0m \u0041\t\r"},"stream":"stderr","at":"2026-11-27T12:00:00.000Z"}`,
		`{"output":{"content":""}}`, `{"output":{"content":"é \u00e9 \ud83d\ude00"}}`, `{"output":{"content":"\xff"}}`,
		`{"output":{"content":"a","content":"b"}}`, `{"output":{"content":"a"},"output":{"content":"b"}}`,
		`{"output":{"content":"a"},"output":null}`, `{"output":{"content":"a"},"Output":{"Content":""}}`,
		`{"output":{"content":"a","CONTENT":"b"},"output_missing":"c"}`, `{"output":{"content":"a\`, `{"output":{"content":"a"`,
		`{"output":{"content":"a"}} x`, `{"output":{"content":"\u12`, `{"output":{"content":"\/"}}`,
		`{"jobFinished":{"job":{"result":{"returnCode":"0","error":null}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range data {
			if c < ' ' {
				t.Skip() // JSON has none within texts.
			}
		}
		var want streamEvent
		errWant := json.Unmarshal(data, &want)
		got, err := decodeEvent(data)
		if (err != nil) != (errWant != nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v, %v", data, got, err, want, errWant)
		}
	})
}
