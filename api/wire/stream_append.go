package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"berth/compute"
)

// OutputEvent is a StreamEvent with output that appends its own JSON: nodes send more
// output than anything else. Begin comes first, then each piece of the output, then End.
type OutputEvent struct {
	Stream string // stdout, stderr or system.
	At     compute.Instant
}

// Begin appends the start of the event.
func (OutputEvent) Begin(b []byte) []byte { return append(b, `{"output":{"content":"`...) }

// Text appends a piece of the output. A run of bytes that are not UTF-8 becomes U+FFFD.
func (OutputEvent) Text(b, text []byte) []byte {
	for len(text) > 0 {
		n := plainBytes(text)
		b = append(b, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		if text[0] < utf8.RuneSelf {
			b = appendEscaped(b, text[0])
			text = text[1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		if r != utf8.RuneError || size > 1 {
			b = append(b, text[:size]...)
			text = text[size:]
			continue
		}
		b = utf8.AppendRune(b, utf8.RuneError)
		for len(text) > 0 && r == utf8.RuneError && size == 1 {
			text = text[1:]
			r, size = utf8.DecodeRune(text)
		}
	}
	return b
}

// End appends the rest of the event.
func (e OutputEvent) End(b []byte) []byte {
	b = append(append(b, `"},"stream":"`...), e.Stream...)
	if !e.At.IsZero() {
		b = append(append(b, `","at":"`...), e.At.String()...)
	}
	return append(b, `"}`...)
}

// Words of eight bytes, each with one bit.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plainBytes returns how many bytes at the start of text are themselves in a JSON string:
// ASCII without control characters, quotes and backslashes.
func plainBytes(text []byte) (n int) {
	for ; n+8 <= len(text); n += 8 {
		word := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := word^lowBits*'"', word^lowBits*'\\'
		// The lowest byte of which the high bit is set is the first that is not plain. Those
		// above it may be wrong, because subtraction borrows.
		special := word | (word - lowBits*' ') | (quote - lowBits) | (backslash - lowBits)
		if special &= highBits; special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
	}
	for n < len(text) && text[n] >= ' ' && text[n] < utf8.RuneSelf && text[n] != '"' && text[n] != '\\' {
		n++
	}
	return n
}

// appendEscaped appends an ASCII character in a JSON string that is not itself there.
func appendEscaped(b []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
}
