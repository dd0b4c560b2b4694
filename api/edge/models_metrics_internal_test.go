package edge

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestCountedEvents counts the events of streams however their bytes come, and changes none.
func TestCountedEvents(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0,
		"data: {\"choices\":[]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n": 2,
		"data: a\ndata: b\n\ndata: [DONE]\n\n":                                 1,
		"data: a\n\ndata: cut":                                                 0,
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(text), "by bytes": iotest.OneByteReader(strings.NewReader(text)),
			"by halves": iotest.HalfReader(strings.NewReader(text)),
		} {
			got := int64(-1)
			e := &countedEvents{ReadCloser: io.NopCloser(from), ended: func(events int64) { got = events }}
			out, err := io.ReadAll(e)
			if err != nil || string(out) != text {
				t.Errorf("%s: read %q, %v", name, out, err)
			}
			for range 2 { // The second Close counts nothing.
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			if got != want {
				t.Errorf("%s: %q has %d events, want %d", name, text, got, want)
			}
		}
	}
}
