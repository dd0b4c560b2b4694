package openai

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
		"data: a\r\n\r\ndata: b\r\n\r\ndata: [DONE]\r\n\r\n":                   2,
		"data: a\r\rdata: b\r\rdata: c\r\rdata: [DONE]\r\r":                    3,
		"data: a\r\n\ndata: b\n\r\ndata: [DONE]\r\n\r":                         2,
		"data: a\r\ndata: b\r\n\r\ndata: [DONE]\r\n\r\n":                       1,
		": ping\n\n\n\ndata: a\n\n\ndatum\n\nevent: x\n\ndata:[DONE]\n\n":      1,
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(text), "by bytes": iotest.OneByteReader(strings.NewReader(text)),
			"by halves": iotest.HalfReader(strings.NewReader(text)),
		} {
			got := int64(-1)
			e := NewCountedEvents(io.NopCloser(from), func(events int64) { got = events })
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
