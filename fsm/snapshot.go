package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fault"
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
	out := &snapshotWriter{w: bufio.NewWriterSize(w, 256<<10), hash: sha256.New()}
	out.write([]byte(snapshotMagic))
	out.write(binary.BigEndian.AppendUint16(nil, snapshotFormat))
	out.record(mustEncode(&v.meta))
	total := 0
	for i, t := range v.stored() {
		n, _ := t.tally()
		total += n
		out.write(binary.BigEndian.AppendUint64([]byte{byte(i)}, uint64(n)))
		t.each(out.record)
	}
	out.write(binary.BigEndian.AppendUint64([]byte{snapshotEnd}, uint64(total)))
	state := v.Hash()
	out.write(state[:])
	out.write(out.hash.Sum(nil))
	if out.err == nil {
		out.err = out.w.Flush()
	}
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	return nil
}

// snapshotWriter hashes what it writes and keeps the first error.
type snapshotWriter struct {
	w    *bufio.Writer
	hash hash.Hash
	err  error
}

func (o *snapshotWriter) write(data []byte) {
	if o.err == nil {
		_, _ = o.hash.Write(data) // A hash takes everything.
		_, o.err = o.w.Write(data)
	}
}

func (o *snapshotWriter) record(data []byte) {
	o.write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
	o.write(data)
}

// errSnapshot is returned for what is not a whole, intact snapshot.
var errSnapshot = errors.New("snapshot is damaged")

// readSnapshot returns the state that WriteSnapshot wrote, checked.
func readSnapshot(r io.Reader) (*state, error) {
	in := &snapshotReader{r: bufio.NewReaderSize(r, 256<<10), hash: sha256.New()}
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
	// What is derived was derived just now; the rest has to hold.
	if err := tables.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// readMeta reads the meta record. What a newer format has in it is unknown here,
// so that is looked at first: it is no damage.
func readMeta(data []byte, m *meta) error {
	var of struct {
		Format uint64 `cbor:"10,keyasint"`
	}
	if err := codec.answer.Unmarshal(data, &of); err == nil && of.Format > Format {
		return errFormat(of.Format)
	}
	if err := codec.dec.Unmarshal(data, m); err != nil {
		return fmt.Errorf("decode meta: %w", err)
	}
	return nil
}

// snapshotReader hashes what it reads.
type snapshotReader struct {
	r    *bufio.Reader
	hash hash.Hash
}

// read returns the next n bytes. A stream that ends early is damaged.
func (in *snapshotReader) read(n int) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(in.r, data); err != nil {
		return nil, endsEarly(err)
	}
	_, _ = in.hash.Write(data) // A hash takes everything.
	return data, nil
}

// endsEarly returns what an error in the middle of the stream means.
func endsEarly(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", errSnapshot)
	}
	return err
}

func (in *snapshotReader) header() error {
	data, err := in.read(len(snapshotMagic) + 2)
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

func (in *snapshotReader) record() ([]byte, error) {
	size, err := in.read(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxRecord {
		return nil, fmt.Errorf("%w: a record of %d bytes", errSnapshot, n)
	}
	return in.read(int(n))
}

// append appends the next record to data.
func (in *snapshotReader) append(data []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(in.r, size[:]); err != nil {
		return nil, endsEarly(err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxRecord {
		return nil, fmt.Errorf("%w: a record of %d bytes", errSnapshot, n)
	}
	at := len(data)
	data = slices.Grow(data, int(n))[:at+int(n)]
	if _, err := io.ReadFull(in.r, data[at:]); err != nil {
		return nil, endsEarly(err)
	}
	_, _ = in.hash.Write(size[:]) // A hash takes everything.
	_, _ = in.hash.Write(data[at:])
	return data, nil
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
	data, err := in.read(1 + 8 + len(state))
	if err != nil {
		return err
	}
	want := in.hash.Sum(nil)
	got, err := in.read(len(want))
	if err != nil {
		return err
	}
	_, more := in.r.ReadByte()
	switch {
	case !bytes.Equal(got, want):
		return fmt.Errorf("%w: its SHA-256 is another one", errSnapshot)
	case data[0] != snapshotEnd, binary.BigEndian.Uint64(data[1:]) != total:
		return fmt.Errorf("%w: the number of records is another one", errSnapshot)
	case !bytes.Equal(data[9:], state[:]):
		return fmt.Errorf("%w: the hash of the state is another one", errSnapshot)
	case !errors.Is(more, io.EOF):
		return fmt.Errorf("%w: there is more behind its end", errSnapshot)
	}
	return nil
}

// loaders has, in the order of stored, what adds an encoded record to each
// table and to all that is derived from it.
func (s *state) loaders() []func([]byte) error {
	return []func([]byte) error{
		load(func(n *compute.Node) { s.nodes.put(n) }),
		load(func(n *removedNode) { s.removed.put(n) }),
		load(func(p *price) { s.prices.put(p) }),
		load(func(t *compute.JoinToken) { s.joins.put(t) }),
		load(s.putOrg), load(s.putUser), load(s.putMembership), load(s.putKey),
		load(s.putRefresh),
		load(func(k *compute.SigningKey) { s.signing.put(k) }),
		load(s.putAccount),
		load(func(e *compute.LedgerEntry) { s.ledger.put(e) }),
		s.loadExecution, load(s.putAttempt),
		load(func(c *compute.Callback) { s.callbacks.put(c) }),
		load(s.putOp),
		load(func(a *admission) { s.admitted.put(a) }),
		load(func(a *arrival) { s.arrived.put(a) }),
		load(func(u *usage) { s.usage.put(u) }),
		load(func(q *compute.Quota) { s.quotas.put(q) }),
		load(func(t *tally) { s.tallies.put(t) }),
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
		if err := codec.dec.Unmarshal(data, v); err != nil {
			return fmt.Errorf("decode %T: %w", v, err)
		}
		put(v)
		return nil
	}
}
