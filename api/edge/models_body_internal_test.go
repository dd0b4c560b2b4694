package edge

import "testing"

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
