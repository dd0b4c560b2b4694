package wire_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
)

// TestOutputEvent has events append themselves that encoding/json reads as they were written.
func TestOutputEvent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"", "a", "plain text of some length", `"quoted"`, `back\slash`, "tab\tfeed\nreturn\r", "\x00\x01\x1f\x7f", "\x1b[31mred\x1b[0m",
		"é€😀", "\xff", "\xff\xfe\xfd text", "\xe2\x82", "<b>&amp;</b>", "\u2028\u2029", "\uFFFD", strings.Repeat("x", 100),
	}
	for range 2000 {
		event := wire.OutputEvent{Stream: []string{"stdout", "stderr", "system"}[rnd.IntN(3)], At: compute.Instant(rnd.IntN(2) * 1_800_000_000_123)}
		data, want := event.Begin(nil), ""
		for range rnd.IntN(4) {
			piece := ""
			for range rnd.IntN(6) {
				piece += pieces[rnd.IntN(len(pieces))]
			}
			data = event.Text(data, []byte(piece))
			want += strings.ToValidUTF8(piece, "\uFFFD")
		}
		data = event.End(data)
		var got wire.StreamEvent
		if err := json.Unmarshal(data, &got); err != nil || strings.ContainsAny(string(data), "\r\n") {
			t.Fatalf("%q: %v", data, err)
		}
		var at compute.Instant
		if got.At != nil {
			at = *got.At
		}
		if got.Output.Content != want || got.Stream != event.Stream || at != event.At || got.Finished != nil {
			t.Fatalf("%q: want %q", data, want)
		}
	}
}
