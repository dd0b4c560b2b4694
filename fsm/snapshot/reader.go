package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"berth/compute"
)

// ErrDamaged is returned for a snapshot that is incomplete or damaged.
var ErrDamaged = errors.New("snapshot is damaged")

// Reader reads a snapshot and hashes it, a block at a time.
type Reader struct {
	r      io.Reader
	hash   hash.Hash
	block  []byte
	taken  int // The end of the taken bytes, in block.
	end    int // The end of the read bytes.
	hashed int // The end of the hashed bytes.
	total  uint64
}

// NewReader returns a reader of the snapshot in r, and its meta record, which is
// valid until the next call. A snapshot of another format is a conflict
// "upgrade_required".
func NewReader(r io.Reader) (in *Reader, meta []byte, err error) {
	in = &Reader{r: r, hash: sha256.New(), block: make([]byte, block)}
	if err := in.header(); err != nil {
		return nil, nil, err
	}
	if meta, err = in.Record(); err != nil {
		return nil, nil, err
	}
	return in, meta, nil
}

// take returns the next n bytes, which are valid until the next call. A
// stream that ends early is damaged.
func (in *Reader) take(n int) ([]byte, error) {
	if in.end-in.taken < n {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	in.taken += n
	return in.block[in.taken-n : in.taken], nil
}

// More reports whether another table follows.
func (in *Reader) More() bool {
	return (in.end > in.taken || in.fill(1) == nil) && in.block[in.taken] != end
}

// fill reads until at least n bytes can be taken.
func (in *Reader) fill(n int) error {
	in.sum()
	in.end = copy(in.block, in.block[in.taken:in.end])
	in.taken, in.hashed = 0, 0
	if n > len(in.block) {
		in.block = append(make([]byte, 0, n), in.block[:in.end]...)[:n]
	}
	more, err := io.ReadAtLeast(in.r, in.block[in.end:], n-in.end)
	in.end += more
	return endsEarly(err)
}

// sum returns the hash of the taken bytes.
func (in *Reader) sum() []byte {
	_, _ = in.hash.Write(in.block[in.hashed:in.taken]) // A hash takes everything.
	in.hashed = in.taken
	return in.hash.Sum(nil)
}

// endsEarly returns ErrDamaged for the end of the stream in the middle of a part.
func endsEarly(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEarlyEnd
	}
	return err
}

// errEarlyEnd is returned for a stream that ends where there should be more.
var errEarlyEnd = fmt.Errorf("%w: it ends early", ErrDamaged)

func (in *Reader) header() error {
	data, err := in.take(len(magic) + 2)
	if err != nil {
		return err
	}
	if string(data[:len(magic)]) != magic {
		return errors.New("this is no snapshot of a berth state")
	}
	if got := binary.BigEndian.Uint16(data[len(magic):]); got != format {
		return compute.Errorf(compute.CodeConflict,
			"The snapshot has format %d and this version of Berth reads %d: install the version that wrote it.",
			got, format).Named("upgrade_required")
	}
	return nil
}

// Record returns the next record of the table, which is valid until the next call.
func (in *Reader) Record() ([]byte, error) {
	size, err := in.take(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxRecord {
		return nil, fmt.Errorf("%w: a record of %d bytes", ErrDamaged, n)
	}
	return in.take(int(n))
}

// Table begins the table with a number and returns how many records it has.
func (in *Reader) Table(number int) (uint64, error) {
	head, err := in.take(9)
	if err != nil {
		return 0, err
	}
	if head[0] != byte(number) {
		return 0, fmt.Errorf("%w: found table %d", ErrDamaged, head[0])
	}
	n := binary.BigEndian.Uint64(head[1:])
	in.total += n
	return n, nil
}

// Close reads the end of the snapshot and compares it with the tables read and with
// the hash of the state that was made of them. It does not close the underlying
// reader.
func (in *Reader) Close(state compute.Hash) error {
	data, err := in.take(1 + 8 + len(state))
	if err != nil {
		return err
	}
	said, want := bytes.Clone(data), in.sum()
	got, err := in.take(len(want))
	if err != nil {
		return err
	}
	_, more := in.take(1)
	switch {
	case !bytes.Equal(got, want):
		return fmt.Errorf("%w: its SHA-256 is another one", ErrDamaged)
	case said[0] != end, binary.BigEndian.Uint64(said[1:]) != in.total:
		return fmt.Errorf("%w: the number of records is another one", ErrDamaged)
	case !bytes.Equal(said[9:], state[:]):
		return fmt.Errorf("%w: the hash of the state is another one", ErrDamaged)
	case !errors.Is(more, errEarlyEnd):
		return fmt.Errorf("%w: there is more behind its end", ErrDamaged)
	}
	return nil
}
