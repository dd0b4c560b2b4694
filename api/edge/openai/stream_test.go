package openai

import (
	"io"
	"strings"
	"testing"
)

// pieces is a stream that is read piece by piece, and then fails or ends.
type pieces struct {
	list []string
	err  error
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.list) == 0 {
		return 0, p.err
	}
	n := copy(to, p.list[0])
	if p.list[0] = p.list[0][n:]; p.list[0] == "" {
		p.list = p.list[1:]
	}
	return n, nil
}

func (p *pieces) Close() error { return nil }

// TestBrokenStreams ends streams in the middle of a line: what there is of it does not reach
// the client, and the lines before it do as they come. A stream that ends by itself is whole.
func TestBrokenStreams(t *testing.T) {
	long := strings.Repeat("x", maxEventLine+1)
	for _, test := range []struct {
		pieces []string
		err    error
		want   []string // Parts that the client has, one after the other.
	}{
		{[]string{"data: 1\n\ndata: {\"a", "b"}, io.ErrUnexpectedEOF, []string{"data: 1\n\n", brokenStream}},
		{[]string{"data: {\"a", "\":1}\n", "\n"}, io.ErrUnexpectedEOF, []string{"data: {\"a\":1}\n", "\n", brokenStream}},
		{[]string{"data: 1\r\n\r\nda"}, engineSilent(1), []string{"data: 1\r\n\r\n", silentStream}},
		{[]string{"data: 1\r\rda"}, io.ErrUnexpectedEOF, []string{"data: 1\r\r", brokenStream}},
		{[]string{"da"}, io.ErrUnexpectedEOF, []string{brokenStream}},
		{nil, io.ErrUnexpectedEOF, []string{brokenStream}},
		{[]string{"data: 1\n\nda", "ta: 2"}, io.EOF, []string{"data: 1\n\n", "data: 2"}},
		{[]string{long, "y\n"}, io.EOF, []string{long, "y\n"}}, // No more than a line's limit is kept.
	} {
		b := &eventBody{from: &pieces{test.pieces, test.err}}
		for _, want := range test.want {
			got := make([]byte, len(want))
			if n, err := io.ReadFull(b, got); err != nil || string(got) != want {
				t.Errorf("%.40q: got %.60q, %v, want %.60q", test.pieces, got[:n], err, want)
			}
			if len(b.ready) > 0 {
				t.Errorf("%.40q: after %.40q there is %.40q", test.pieces, want, b.ready)
			}
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // Readers return it as it is.
			t.Errorf("%.40q: the end is %d, %v", test.pieces, n, err)
		}
	}
}
