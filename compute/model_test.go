package compute_test

import (
	"testing"

	"berth/compute"
)

// TestTokenNote holds that a note is read as it was written, and that no other note is.
func TestTokenNote(t *testing.T) {
	for _, model := range []string{"chat", "lab/chat:7b", "odd: 3 prompt and 4 completion tokens"} {
		got, prompt, completion, ok := compute.ParseTokenNote(compute.TokenNote(model, 12, 1<<40))
		if !ok || got != model || prompt != 12 || completion != 1<<40 {
			t.Errorf("%s: read %s, %d, %d, %v", model, got, prompt, completion, ok)
		}
	}
	for _, note := range []string{
		"", "serverless chat", "serverless chat: more tokens than expected", "serverless chat: 1 prompt and 2 completion tokens ",
		"serverless chat: 01 prompt and 2 completion tokens", "chat: 1 prompt and 2 completion tokens",
	} {
		if _, _, _, ok := compute.ParseTokenNote(note); ok {
			t.Errorf("%q is read", note)
		}
	}
}
