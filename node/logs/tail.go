package logs

import (
	"context"
	"unicode/utf8"
)

// Limits of tails.
const (
	MaxTail        = 4 << 20  // Bytes of each text.
	tailPieceBytes = 64 << 10 // Bytes of a text in one record on the wire.
)

// Tail is the last output of an attempt.
type Tail struct {
	Stdout, Stderr []byte
	Combined       []byte // Both in the order of writing, with Berth's own lines.
	Truncated      bool   // At least one text lacks its start.
}

// tailer keeps the last limit bytes of each text.
type tailer struct {
	limit int
	texts [3][]byte // Stdout, Stderr, combined.
	cut   bool
}

// combined is the index of the combined text among the texts of a tailer.
const combined = 2

// newTailer returns a tailer for texts of at most limit bytes.
func newTailer(limit int) *tailer {
	return &tailer{limit: min(max(limit, 0), MaxTail)}
}

// add appends the texts of lines.
func (t *tailer) add(lines []Line) error {
	for _, l := range lines {
		if l.Stream == System {
			if c := t.texts[combined]; len(c) > 0 && c[len(c)-1] != '\n' {
				t.append(combined, nil, true)
			}
			t.append(combined, l.Text, true)
			continue
		}
		t.append(int(l.Stream), l.Text, !l.Partial)
		t.append(combined, l.Text, !l.Partial)
	}
	return nil
}

// append adds text to the i-th text. The text grows to twice its limit before
// its end is moved to the front, so that each byte is moved once.
func (t *tailer) append(i int, text []byte, feed bool) {
	b := append(t.texts[i], text...)
	if feed {
		b = append(b, '\n')
	}
	if len(b) > 2*t.limit {
		b = b[:copy(b, b[len(b)-t.limit:])]
		t.cut = true
	}
	t.texts[i] = b
}

// tail returns the collected texts. None starts within a rune.
func (t *tailer) tail() Tail {
	for i, b := range t.texts {
		if len(b) > t.limit {
			b = b[len(b)-t.limit:]
			t.cut = true
		}
		for n := 0; t.cut && n < utf8.UTFMax && len(b) > 0 && !utf8.RuneStart(b[0]); n++ {
			b = b[1:]
		}
		t.texts[i] = b
	}
	return Tail{Stdout: t.texts[0], Stderr: t.texts[1], Combined: t.texts[combined], Truncated: t.cut}
}

// tail calls use with the last output of an attempt that is on this disk, at most
// limit bytes of each text. It waits while other tails are used.
func (s *Store) tail(ctx context.Context, a attempt, limit int, use func(Tail) error) error {
	done, err := s.tails.Take(ctx, a.execution)
	if err != nil {
		return err
	}
	defer done()
	t := newTailer(limit)
	if _, err := s.follow(ctx, a, 0, hooks{ended: always, lines: t.add, idle: proceed}); err != nil {
		return err
	}
	return use(t.tail())
}

// always reports that there is nothing to wait for.
func always() bool { return true }

// proceed does nothing when there is nothing new.
func proceed() error { return nil }

// tailPiece is a piece of one of the three texts of a Tail on the wire.
type tailPiece struct {
	text      int
	truncated bool
	bytes     []byte
}

// tail reads a tailPiece.
func (d *decoder) tail() tailPiece {
	p := tailPiece{text: int(d.byte()), truncated: d.byte() == 1, bytes: d.rest}
	d.bad = d.bad || p.text > combined
	return p
}

// tail sends t: pieces, then the end of the answer.
func (s *sender) tail(t Tail) error {
	for i, text := range [][]byte{t.Stdout, t.Stderr, t.Combined} {
		for len(text) > 0 || i == combined {
			n := min(len(text), tailPieceBytes)
			s.buf = append(begin(s.buf[:0], kindTail), byte(i), 0)
			if t.Truncated {
				s.buf[len(s.buf)-1] = 1
			}
			s.buf = finish(append(s.buf, text[:n]...), 0)
			if err := s.send(); err != nil {
				return err
			}
			if text = text[n:]; len(text) == 0 {
				break
			}
		}
	}
	return s.end(nil)
}

// addPiece appends a piece that another node sent.
func (t *Tail) addPiece(p tailPiece) {
	text := [...]*[]byte{&t.Stdout, &t.Stderr, &t.Combined}[p.text]
	*text = append(*text, p.bytes...)
	t.Truncated = t.Truncated || p.truncated
}
