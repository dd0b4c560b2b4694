package logs

import "bytes"

// tailBytes is how much of the end of each stream is always stored.
const tailBytes = 1 << 20

// streamTail holds the last bytes of a stream, and how many of them the log does not
// have.
type streamTail struct {
	text    []byte // At most twice tailBytes.
	unsaved int64  // Bytes at the end of the stream that are not stored; more than text has, if some are lost.
	lines   int64  // Line feeds among them.
}

// add appends p. The text grows to twice its limit before its end is moved to the
// front, so that each byte is moved once.
func (t *streamTail) add(p []byte) {
	if len(p) > tailBytes {
		p, t.text = p[len(p)-tailBytes:], t.text[:0]
	}
	if len(t.text)+len(p) > 2*tailBytes {
		t.text = t.text[:copy(t.text, t.text[len(t.text)-tailBytes:])]
	}
	t.text = append(t.text, p...)
}

// bytes returns the last tailBytes.
func (t *streamTail) bytes() []byte { return t.text[max(len(t.text)-tailBytes, 0):] }

// end returns the unsaved bytes that are still here. If some are lost, it begins
// with a line.
func (t *streamTail) end() []byte {
	text := t.bytes()
	if t.unsaved <= int64(len(text)) {
		return text[int64(len(text))-t.unsaved:]
	}
	return wholeLines(text)
}

// wholeLines returns text without the line that it begins with, which may lack its
// start. A text without a line feed is returned whole.
func wholeLines(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
		return text[i+1:]
	}
	return text
}

// userBytes returns how many bytes of the code a line stands for.
func userBytes(l Line) int64 {
	n := int64(len(l.Text))
	if !l.Partial {
		n++
	}
	return n
}

// textBytes counts the code's bytes of each stream.
type textBytes [streams]int64

// textOf counts the code's bytes in lines.
func textOf(lines []Line) (n textBytes) {
	for _, l := range lines {
		n[l.Stream] += userBytes(l)
	}
	return n
}

func (n textBytes) sum() int64 { return n[Stdout] + n[Stderr] }
