package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fault"
	"berth/fsm/store"
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
	snapshotMagic  = "BERTHFSM"
	snapshotFormat = 2
	snapshotEnd    = 0xff
	maxRecord      = 1 << 20 // Bytes of one record: four commands.
)

// snapshot is a published view on its way to disk.
type snapshot struct{ view *View }

// Persist writes the view. Apply goes on meanwhile: a view never changes.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	err := fault.Error("fsm.snapshot.begin")
	if err == nil {
		err = s.view.WriteSnapshot(sink)
	}
	if err == nil {
		err = fault.Error("fsm.snapshot.written")
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	fault.Point("fsm.snapshot.closed")
	return nil
}

// Release does nothing: a view is garbage like any other.
func (s *snapshot) Release() {}

// WriteSnapshot writes v in the form that Restore reads.
func (v *View) WriteSnapshot(w io.Writer) error {
	out := &snapshotWriter{w: w, hash: sha256.New(), block: make([]byte, 0, snapshotBlock)}
	out.write([]byte(snapshotMagic))
	out.write(binary.BigEndian.AppendUint16(nil, snapshotFormat))
	out.record(store.MustEncode(&v.meta))
	total := 0
	for i, t := range v.kept() {
		n, _ := t.Digest()
		total += n
		out.write(binary.BigEndian.AppendUint64([]byte{byte(i)}, uint64(n)))
		t.Each(out.record)
	}
	out.write(binary.BigEndian.AppendUint64([]byte{snapshotEnd}, uint64(total)))
	state := v.Hash()
	out.write(state[:])
	out.flush()
	out.write(out.hash.Sum(nil))
	out.flush()
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	return nil
}

// snapshotBlock is how many bytes are written, or read, and hashed at once.
const snapshotBlock = 256 << 10

// snapshotWriter hashes what it writes and keeps the first error.
type snapshotWriter struct {
	w     io.Writer
	hash  hash.Hash
	block []byte // Neither hashed nor written yet.
	err   error
}

func (o *snapshotWriter) write(data []byte) {
	if len(o.block)+len(data) > snapshotBlock {
		o.flush()
	}
	o.block = append(o.block, data...)
}

func (o *snapshotWriter) flush() {
	if o.err == nil {
		_, _ = o.hash.Write(o.block) // A hash takes everything.
		_, o.err = o.w.Write(o.block)
	}
	o.block = o.block[:0]
}

func (o *snapshotWriter) record(data []byte) {
	if len(o.block)+4+len(data) > snapshotBlock {
		o.flush()
	}
	o.block = append(binary.BigEndian.AppendUint32(o.block, uint32(len(data))), data...)
}

// errSnapshot is returned for what is not a whole, intact snapshot.
var errSnapshot = errors.New("snapshot is damaged")

// readSnapshot returns the state that WriteSnapshot wrote, checked.
func readSnapshot(r io.Reader) (*state, error) {
	in := &snapshotReader{r: r, hash: sha256.New(), block: make([]byte, snapshotBlock)}
	s := newState()
	if err := in.header(); err != nil {
		return nil, err
	}
	data, err := in.record()
	if err != nil {
		return nil, err
	}
	if err := readMeta(data, &s.meta); err != nil {
		return nil, err
	}
	tables, total, err := s.readTables(in)
	if err != nil {
		return nil, err
	}
	s.reshape()
	s.remix()
	if err := in.trailer(total, s.Hash()); err != nil {
		return nil, err
	}
	// Derived data was just computed; the rest is checked.
	if err := tables.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// readMeta reads the meta record. What a newer format has in it is unknown here,
// so that is checked first: it is not damage.
func readMeta(data []byte, m *meta) error {
	var of struct {
		Format uint64 `cbor:"10,keyasint"`
	}
	if err := store.DecodeKnown(data, &of); err == nil && of.Format > Format {
		return errFormat(of.Format)
	}
	if err := store.Decode(data, m); err != nil {
		return fmt.Errorf("decode meta: %w", err)
	}
	return nil
}

// snapshotReader hashes what it reads, a block at a time.
type snapshotReader struct {
	r      io.Reader
	hash   hash.Hash
	block  []byte
	at     int // What was taken ends here,
	end    int // and what was read.
	hashed int // What was hashed.
}

// take returns the next n bytes, which are valid until the next call. A
// stream that ends early is damaged.
func (in *snapshotReader) take(n int) ([]byte, error) {
	if in.end-in.at < n {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	in.at += n
	return in.block[in.at-n : in.at], nil
}

// next returns the next byte without taking it, 0 when the stream ends.
func (in *snapshotReader) next() byte {
	if in.end == in.at && in.fill(1) != nil {
		return 0
	}
	return in.block[in.at]
}

// fill reads until at least n bytes can be taken.
func (in *snapshotReader) fill(n int) error {
	in.sum()
	in.end = copy(in.block, in.block[in.at:in.end])
	in.at, in.hashed = 0, 0
	if n > len(in.block) {
		in.block = append(make([]byte, 0, n), in.block[:in.end]...)[:n]
	}
	more, err := io.ReadAtLeast(in.r, in.block[in.end:], n-in.end)
	in.end += more
	return endsEarly(err)
}

// sum returns the hash of what was taken.
func (in *snapshotReader) sum() []byte {
	_, _ = in.hash.Write(in.block[in.hashed:in.at]) // A hash takes everything.
	in.hashed = in.at
	return in.hash.Sum(nil)
}

// endsEarly returns what an error in the middle of the stream means.
func endsEarly(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnds
	}
	return err
}

// errEnds is returned for a stream that ends where there should be more.
var errEnds = fmt.Errorf("%w: it ends early", errSnapshot)

func (in *snapshotReader) header() error {
	data, err := in.take(len(snapshotMagic) + 2)
	if err != nil {
		return err
	}
	if string(data[:len(snapshotMagic)]) != snapshotMagic {
		return errors.New("this is no snapshot of a berth state")
	}
	if format := binary.BigEndian.Uint16(data[len(snapshotMagic):]); format != snapshotFormat {
		return compute.Errorf(compute.CodeConflict,
			"The snapshot has format %d and this version of Berth reads %d: install the version that wrote it.",
			format, snapshotFormat).Named("upgrade_required")
	}
	return nil
}

// record returns the next record, which is valid until the next call.
func (in *snapshotReader) record() ([]byte, error) {
	size, err := in.take(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxRecord {
		return nil, fmt.Errorf("%w: a record of %d bytes", errSnapshot, n)
	}
	return in.take(int(n))
}

// tableSize returns how many records a table has by its head.
func tableSize(head []byte, number byte) (uint64, error) {
	if head[0] != number {
		return 0, fmt.Errorf("%w: found table %d", errSnapshot, head[0])
	}
	return binary.BigEndian.Uint64(head[1:]), nil
}

// trailer compares what the end of the stream says with what was read.
func (in *snapshotReader) trailer(total uint64, state compute.Hash) error {
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
		return fmt.Errorf("%w: its SHA-256 is another one", errSnapshot)
	case said[0] != snapshotEnd, binary.BigEndian.Uint64(said[1:]) != total:
		return fmt.Errorf("%w: the number of records is another one", errSnapshot)
	case !bytes.Equal(said[9:], state[:]):
		return fmt.Errorf("%w: the hash of the state is another one", errSnapshot)
	case !errors.Is(more, errEnds):
		return fmt.Errorf("%w: there is more behind its end", errSnapshot)
	}
	return nil
}

// loaders has, in the order of stored, what adds an encoded record to each
// table and to all that is derived from it.
func (s *state) loaders() []func([]byte) error {
	return []func([]byte) error{
		load(func(n *compute.Node) { s.nodes.put(n) }),
		load(func(n *removedNode) { s.removed.Put(n) }),
		load(func(p *price) { s.prices.Put(p) }),
		load(func(t *compute.JoinToken) { s.joins.Put(t) }),
		load(s.putOrg), load(s.putUser), load(s.putMembership), load(s.putKey),
		load(s.putRefresh),
		load(func(k *compute.SigningKey) { s.signing.Put(k) }),
		load(s.putAccount),
		load(func(e *compute.LedgerEntry) { s.ledger.Put(e) }),
		s.loadExecution, load(s.putAttempt),
		load(func(c *compute.Callback) { s.callbacks.Put(c) }),
		load(s.putOp),
		load(func(a *admission) { s.admitted.Put(a) }),
		load(func(a *arrival) { s.arrived.Put(a) }),
		load(func(u *usage) { s.usage.Put(u) }),
		load(func(q *compute.Quota) { s.quotas.Put(q) }),
		load(func(t *tally) { s.tallies.Put(t) }),
		load(s.putArchive),
	}
}

// loadExecution adds an execution. Its status and kind are counted, so they
// must exist even in a damaged record, which is only found out at the end.
func (s *state) loadExecution(data []byte) error {
	unknown := false
	err := load(func(e *compute.Execution) {
		unknown = int(e.Status) >= compute.Statuses || int(e.Kind) >= kinds
		if !unknown {
			s.putExecution(e)
		}
	})(data)
	if unknown {
		return fmt.Errorf("%w: an execution with an unknown status or kind", errSnapshot)
	}
	return err
}

func load[V any](put func(*V)) func([]byte) error {
	return func(data []byte) error {
		v := new(V)
		if err := store.DecodeRecord(data, v); err != nil {
			return err
		}
		put(v)
		return nil
	}
}
