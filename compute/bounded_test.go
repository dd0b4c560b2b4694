package compute_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"berth/compute"
)

// TestBounded reads a body that is as long as it may be, and stops one that is longer.
func TestBounded(t *testing.T) {
	tooMuch := errors.New("too much")
	for text, want := range map[string]error{"": nil, "abc": nil, "abcd": tooMuch, strings.Repeat("x", 5000): tooMuch} {
		for _, body := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			got, err := io.ReadAll(compute.Bounded(body, 3, tooMuch))
			if !errors.Is(err, want) || string(got) != text[:min(len(text), 3)] {
				t.Errorf("%.10q: read %q, %v", text, got, err)
			}
		}
	}
	if n, err := io.ReadAll(compute.Bounded(strings.NewReader("a"), -5, tooMuch)); len(n) != 0 || !errors.Is(err, tooMuch) {
		t.Errorf("without space: %q, %v", n, err)
	}
}
