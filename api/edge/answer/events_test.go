package answer

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strings"
	"testing"
)

// TestEventsOfAnySize writes small and large events in turn, with the buffers of both, and
// reads them as HTTP frames them.
func TestEventsOfAnySize(t *testing.T) {
	ours, theirs := net.Pipe()
	got := make(chan string)
	go func() {
		text, err := io.ReadAll(httputil.NewChunkedReader(theirs))
		got <- fmt.Sprintf("%s %v", text, err)
	}()
	w := &EventWriter{conn: ours, to: ours, framed: true, buffers: new(EventBuffers)}
	var want bytes.Buffer
	for i := range 40 {
		size := []int{10, 5 << 10, 20 << 10, 33 << 10, 300 << 10}[i%5]
		text := strings.Repeat(string(rune('a'+i%26)), size)
		if err := w.Append(uint64(i), size/(1+i%2), func(b []byte) []byte { return append(b, text...) }); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "id: %d\ndata: %s\n\n", i, text)
		if i%3 == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Event(map[string]int{"end": 1}); err != nil {
		t.Fatal(err)
	}
	want.WriteString("data: {\"end\":1}\n\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if w.buf != nil {
		t.Error("a writer that waits holds a buffer")
	}
	w.End()
	want.WriteString(" <nil>")
	if text := <-got; text != want.String() {
		t.Errorf("got %d bytes, want %d", len(text), want.Len())
	}
}
