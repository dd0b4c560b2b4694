package logs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"berth/compute"
)

// The kinds of records. Values are written to disk and sent: append only.
const (
	kindChunk byte = iota + 1 // The first of each chunk.
	kindLine
	kindEnd   // The attempt's output is complete.
	kindSeal  // This chunk is complete, the output is not.
	kindIdle  // This chunk is complete, but the output is not.
	kindFault // Wire only: the sender failed.
	kindTail  // Wire only: a piece of a tail.
	kindOver  // Wire only: the answer ends without the end of the output.
	kindLines // Several lines with consecutive numbers; sent only to those that ask for them.
	kindFound // Wire only: how many lines a search found; the last record of its answer.
	kindCopy  // Wire only: how far a copy goes.
)

const (
	recordHeader = 8                 // Length and CRC32C of the body.
	maxLineBytes = 1 << 20           // The upper bound of Limits.LineBytes.
	maxBody      = maxLineBytes + 64 // A body that claims more is damaged.

	flagPartial = 0x80 // In the byte that holds the stream.
)

var (
	errTorn    = errors.New("log record is incomplete")
	errDamaged = errors.New("log record is damaged")
)

// record is one decoded record. Text of a line aliases the decoded bytes.
type record struct {
	kind  byte
	line  Line
	lines []Line // The lines of kindLines.
	// total depends on the kind. For kindChunk and kindSeal it is the number of the code's
	// bytes before; 0 if unknown. For kindFound it is the number of lines, and for kindCopy
	// the value that sendCopy encodes.
	total uint64
	final Final
	fault compute.Error
	tail  tailPiece
}

// all returns the lines of a record.
func (r *record) all() []Line {
	if r.kind == kindLine {
		return []Line{r.line}
	}
	return r.lines
}

// begin appends space for a record's header, and its kind.
func begin(b []byte, kind byte) []byte {
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, kind)
}

// finish fills in the header of the record that starts at start.
func finish(b []byte, start int) []byte {
	body := b[start+recordHeader:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+4:], checksum(body))
	return b
}

// checksum returns the CRC32C of body.
func checksum(body []byte) uint32 {
	return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
}

// appendLine appends the record of l.
func appendLine(b []byte, l Line) []byte {
	start := len(b)
	stream := byte(l.Stream)
	if l.Partial {
		stream |= flagPartial
	}
	b = append(begin(b, kindLine), stream)
	b = binary.AppendUvarint(b, l.Seq)
	b = binary.AppendUvarint(b, uint64(l.At))
	b = append(b, l.Text...)
	return finish(b, start)
}

// appendEnd appends the record that ends an attempt's output.
func appendEnd(b []byte, final Final) []byte {
	start := len(b)
	b = binary.AppendVarint(begin(b, kindEnd), int64(final.ExitCode))
	b = appendText(b, final.Status)
	b = appendText(b, clip(final.Error, maxErrorBytes))
	return finish(b, start)
}

// maxErrorBytes bounds the texts of end and fault records.
const maxErrorBytes = 4 << 10

// appendChunk appends the record that starts a chunk: its format, the number
// that its first line has or will have, when it was started, and how many bytes of
// the code came before.
func appendChunk(b []byte, first uint64, at compute.Instant, total int64) []byte {
	start := len(b)
	b = append(begin(b, kindChunk), chunkFormat)
	b = binary.AppendUvarint(b, first)
	b = binary.AppendUvarint(b, uint64(at))
	b = binary.AppendUvarint(b, uint64(total))
	return finish(b, start)
}

// appendSeal appends the record that completes a chunk.
func appendSeal(b []byte, total int64) []byte {
	start := len(b)
	return finish(binary.AppendUvarint(begin(b, kindSeal), uint64(total)), start)
}

// Limits of one record of lines.
const (
	maxRecordLines = 512
	maxRecordText  = 32 << 10 // Unless one line is longer. Readers hold a record at a time.
)

// ofOneRecord returns how many of lines, whose numbers may have gaps, the next record has
// if it is to have about most bytes of text.
func ofOneRecord(lines []Line, most int) int {
	n, size := 1, len(lines[0].Text)
	for n < min(len(lines), maxRecordLines) && size+len(lines[n].Text) <= most && lines[n].Seq == lines[n-1].Seq+1 {
		size += len(lines[n].Text)
		n++
	}
	return n
}

// appendLines appends one record with lines whose numbers follow each other:
//
//	number and instant of the first line (uvarints)
//	for each line: stream and partial flag (u8), milliseconds since the line before
//	(varint), length (uvarint), text
func appendLines(b []byte, lines []Line) []byte {
	if len(lines) == 1 {
		return appendLine(b, lines[0])
	}
	start := len(b)
	b = binary.AppendUvarint(begin(b, kindLines), lines[0].Seq)
	b = binary.AppendUvarint(b, uint64(lines[0].At))
	at := lines[0].At
	for _, l := range lines {
		stream := byte(l.Stream)
		if l.Partial {
			stream |= flagPartial
		}
		b = binary.AppendVarint(append(b, stream), int64(l.At-at))
		b = append(binary.AppendUvarint(b, uint64(len(l.Text))), l.Text...)
		at = l.At
	}
	return finish(b, start)
}

// lines reads the body of a kindLines record and appends its lines.
func (d *decoder) lines(lines []Line) []Line {
	seq, at := d.uvarint(), compute.Instant(d.uvarint())
	for len(d.rest) > 0 && !d.bad && len(lines) < maxRecordLines {
		stream := d.byte()
		at += compute.Instant(d.varint())
		l := Line{Seq: seq, At: at, Stream: Stream(stream &^ flagPartial), Partial: stream&flagPartial != 0, Text: d.bytes()}
		d.bad = d.bad || l.Stream >= streams || seq == 0
		lines = append(lines, l)
		seq++
	}
	d.bad = d.bad || len(d.rest) > 0
	return lines
}

// chunkFormat is the version of the chunk files.
const chunkFormat = 1

// appendMark appends a record that consists of its kind.
func appendMark(b []byte, kind byte) []byte {
	start := len(b)
	return finish(begin(b, kind), start)
}

// appendFault appends the record with which a failed sender ends.
func appendFault(b []byte, err error) []byte {
	start := len(b)
	b = appendText(begin(b, kindFault), string(compute.CodeOf(err)))
	b = appendText(b, clip(compute.MessageOf(err), maxErrorBytes))
	return finish(b, start)
}

// recordSize returns the size of the record that starts b, which has its header.
func recordSize(b []byte) int { return recordHeader + int(binary.LittleEndian.Uint32(b)) }

// parse returns the first record of b and its size. It returns errTorn when b
// ends within the record, and errDamaged when b does not start with a valid
// record.
func parse(b []byte) (record, int, error) { return parseInto(b, nil) }

// parseInto is parse. Several lines of a record are decoded into the capacity of lines.
func parseInto(b []byte, lines []Line) (record, int, error) {
	if len(b) < recordHeader {
		return record{}, 0, errTorn
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 1 || n > maxBody {
		return record{}, 0, errDamaged
	}
	end := recordHeader + int(n)
	if len(b) < end {
		return record{}, 0, errTorn
	}
	body := b[recordHeader:end]
	if checksum(body) != binary.LittleEndian.Uint32(b[4:]) {
		return record{}, 0, errDamaged
	}
	rec, err := parseBody(body, lines)
	return rec, end, err
}

// parseBody returns the record whose checked body is b.
func parseBody(b []byte, lines []Line) (record, error) {
	rec := record{kind: b[0]}
	d := decoder{rest: b[1:]}
	switch rec.kind {
	case kindChunk:
		d.bad = d.byte() != chunkFormat
		rec.line = Line{Seq: d.uvarint(), At: compute.Instant(d.uvarint())}
		rec.total = d.optional()
		d.bad = d.bad || rec.line.Seq == 0
	case kindLine:
		stream := d.byte()
		rec.line = Line{
			Stream:  Stream(stream &^ flagPartial),
			Partial: stream&flagPartial != 0,
			Seq:     d.uvarint(),
			At:      compute.Instant(d.uvarint()),
			Text:    d.rest,
		}
		d.bad = d.bad || rec.line.Stream >= streams || rec.line.Seq == 0
	case kindEnd:
		rec.final = Final{ExitCode: int(d.varint()), Status: d.text(), Error: d.text()}
	case kindFault:
		rec.fault = compute.Error{Code: compute.Code(d.text()), Message: d.text()}
	case kindTail:
		rec.tail = d.tail()
	case kindLines:
		rec.lines = d.lines(lines[:0])
	case kindSeal:
		rec.total = d.optional()
	case kindFound, kindCopy:
		rec.total = d.uvarint()
	case kindIdle, kindOver:
	default:
		d.bad = true
	}
	if d.bad {
		return record{}, errDamaged
	}
	return rec, nil
}

// decoder reads the fields of a body in order and remembers the first fault.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// optional reads a number that older versions do not write.
func (d *decoder) optional() uint64 {
	if len(d.rest) == 0 {
		return 0
	}
	return d.uvarint()
}

func (d *decoder) text() string { return string(d.bytes()) }

// bytes reads a length and as many bytes, which alias the record.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	v := d.rest[:n]
	d.rest = d.rest[n:]
	return v
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// clip returns at most the first n bytes of s.
func clip(s string, n int) string { return s[:min(len(s), n)] }
