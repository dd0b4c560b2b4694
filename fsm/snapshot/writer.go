package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"

	"berth/compute"
)

// A snapshot is
//
//	magic (8 bytes), format (u16), meta record
//	per table: its number (u8), how many records (u64), the records by key
//	0xff, how many records in all (u64), state hash, SHA-256 of all before
//
// with each record as its length (u32) and its CBOR encoding. Numbers are
// big-endian.
const (
	magic     = "BERTHFSM"
	format    = 2
	end       = 0xff
	maxRecord = 1 << 20 // Bytes of one record: four commands.
)

// block is the number of bytes that are written, or read, and hashed at once.
const block = 256 << 10

// Writer writes a snapshot. After an error it writes nothing more; Close returns the
// error.
type Writer struct {
	w     io.Writer
	hash  hash.Hash
	block []byte // Neither hashed nor written yet.
	total uint64 // Records of the tables.
	err   error
}

// NewWriter returns a writer of a snapshot to w that begins with the record meta.
func NewWriter(w io.Writer, meta []byte) *Writer {
	o := &Writer{w: w, hash: sha256.New(), block: make([]byte, 0, block)}
	o.write([]byte(magic))
	o.write(binary.BigEndian.AppendUint16(nil, format))
	o.Record(meta)
	return o
}

// Table begins a table of n records. Tables are numbered from 0.
func (o *Writer) Table(number, n int) {
	o.total += uint64(n)
	o.write(binary.BigEndian.AppendUint64([]byte{byte(number)}, uint64(n)))
}

// Record writes one record of the table that was begun last.
func (o *Writer) Record(data []byte) {
	if len(o.block)+4+len(data) > block {
		o.flush()
	}
	o.block = append(binary.BigEndian.AppendUint32(o.block, uint32(len(data))), data...)
}

// Close ends the snapshot of a state with the given hash. It does not close the
// underlying writer.
func (o *Writer) Close(state compute.Hash) error {
	o.write(binary.BigEndian.AppendUint64([]byte{end}, o.total))
	o.write(state[:])
	o.flush()
	o.write(o.hash.Sum(nil))
	o.flush()
	return o.err
}

func (o *Writer) write(data []byte) {
	if len(o.block)+len(data) > block {
		o.flush()
	}
	o.block = append(o.block, data...)
}

func (o *Writer) flush() {
	if o.err == nil {
		_, _ = o.hash.Write(o.block) // A hash takes everything.
		_, o.err = o.w.Write(o.block)
	}
	o.block = o.block[:0]
}
