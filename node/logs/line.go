package logs

import (
	"berth/compute"
)

// Stream names the source of a line.
type Stream uint8

// The streams. Values are written to disk: append only.
const (
	Stdout Stream = iota // The execution's standard output.
	Stderr               // The execution's standard error.
	System               // Written by Berth, such as a mark for dropped lines.

	streams = 3
)

// String returns the stream's name.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case System:
		return "system"
	}
	return "unknown"
}

// Line is one line of output without its line feed. A partial line had none: it
// was cut at Limits.LineBytes or flushed before its end was written. The next
// line of its stream continues it.
type Line struct {
	Seq     uint64 // 1, 2, 3, ... in an attempt; see Number for executions.
	At      compute.Instant
	Stream  Stream
	Text    []byte
	Partial bool
}

// Limits bound what one attempt may write.
type Limits struct {
	RingBytes      int64 // Bytes of the code that are stored; beyond it the middle of the output is dropped.
	PacedBytes     int64 // Output up to this size is never dropped; the code is slowed down to the rate.
	BytesPerSecond int64 // Rate of the code's output, with a burst of one second.
	LineBytes      int   // Longer lines are split.
}

// The limits that a zero field of Limits stands for.
const (
	DefaultRingBytes      = 64 << 20
	DefaultPacedBytes     = 64 << 20
	DefaultBytesPerSecond = 10 << 20
	DefaultLineBytes      = 64 << 10
)

// withDefaults returns l with its zero fields set. It returns an error for
// invalid limits.
func (l Limits) withDefaults() (Limits, error) {
	if l.RingBytes == 0 {
		l.RingBytes = DefaultRingBytes
	}
	if l.PacedBytes == 0 {
		l.PacedBytes = DefaultPacedBytes
	}
	if l.BytesPerSecond == 0 {
		l.BytesPerSecond = DefaultBytesPerSecond
	}
	if l.LineBytes == 0 {
		l.LineBytes = DefaultLineBytes
	}
	if l.LineBytes < 1 || l.LineBytes > maxLineBytes || l.BytesPerSecond < 1 {
		return l, compute.Errorf(compute.CodeInvalid,
			"log lines must be 1 to %d bytes and the rate positive", maxLineBytes)
	}
	if l.chunkBytes() < int64(l.LineBytes)+chunkReserve {
		return l, compute.Errorf(compute.CodeInvalid,
			"a log ring of %d bytes is too small for lines of %d", l.RingBytes, l.LineBytes)
	}
	return l, nil
}

// chunkBytes returns how many of the code's bytes one file of the ring holds.
func (l Limits) chunkBytes() int64 { return l.RingBytes / ringChunks }

// Final is how an attempt ended, as recorded at the end of its output.
type Final struct {
	ExitCode int
	Error    string
	Status   string // As compute.Status spells it.
}

// Stats counts what a Writer did since it was created.
type Stats struct {
	Received      int64 // Bytes of the code, stored or not.
	ReceivedLines int64 // Unfinished ones included.

	Lines        int64 // Stored, marks included.
	Bytes        int64 // Size of the stored text.
	DroppedLines int64
	DroppedBytes int64 // With line feeds.
}

// Number returns the number of a line among all attempts of its execution: a
// single value that rises with epoch and seq. The lines of a first attempt
// keep their own numbers 1, 2, 3.
func Number(epoch, seq uint64) uint64 { return (max(epoch, 1)-1)<<seqBits | seq }

// Split is the inverse of Number.
func Split(number uint64) (epoch, seq uint64) {
	return number>>seqBits + 1, number & (1<<seqBits - 1)
}

// seqBits is how many bits of a Number count lines. At 10 MiB/s, 2^40 lines
// take longer than any machine lasts, and so do 2^24 attempts.
const seqBits = 40

// lastSeq is a number behind every line of an attempt.
const lastSeq = 1<<seqBits - 1
