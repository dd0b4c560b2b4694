package node

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
)

// pieceReader returns its pieces one by one, and notes the room that it was given for each.
type pieceReader struct {
	pieces []string
	room   []int
}

func (r *pieceReader) Read(p []byte) (int, error) {
	r.room = append(r.room, len(p))
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	if r.pieces[0] = r.pieces[0][n:]; r.pieces[0] == "" {
		r.pieces = r.pieces[1:]
	}
	return n, nil
}

// TestCopyPieces copies with a small buffer while there is little to send, and with a large
// one while there is much.
func TestCopyPieces(t *testing.T) {
	little, much := "data: {}\n\n", strings.Repeat("x", largePiece+smallPiece)
	for name, test := range map[string]struct {
		pieces []string
		room   []int
	}{
		"nothing":      {nil, []int{smallPiece}},
		"events":       {[]string{little, little}, []int{smallPiece, smallPiece, smallPiece}},
		"a large body": {[]string{much, little}, []int{smallPiece, largePiece, largePiece, smallPiece}},
		"events after it": {
			[]string{much, little, little, much[:smallPiece]},
			[]int{smallPiece, largePiece, largePiece, smallPiece, smallPiece, largePiece},
		},
	} {
		var got bytes.Buffer
		from := &pieceReader{pieces: slices.Clone(test.pieces)}
		copyPieces(&got, from)
		if got.String() != strings.Join(test.pieces, "") || !slices.Equal(from.room, test.room) {
			t.Errorf("%s: %d bytes are copied, with room for %v, want %v", name, got.Len(), from.room, test.room)
		}
	}
}

// failingWriter fails after some writes.
type failingWriter int

func (w *failingWriter) Write(p []byte) (int, error) {
	if *w--; *w < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestCopyPiecesEnds ends when nothing more can be written.
func TestCopyPiecesEnds(t *testing.T) {
	from, to := &pieceReader{pieces: []string{"a", "b", "c"}}, failingWriter(1)
	if copyPieces(&to, from); len(from.pieces) != 1 {
		t.Errorf("%d pieces are left, want 1", len(from.pieces))
	}
}
