package fsm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"berth/compute"
	"berth/fsm/store"
)

// The blob of an archive is
//
//	magic (8 bytes), format (u16)
//	gzip of: cluster (16 bytes), month (u32), number of executions (u32), and per
//	execution, by organization, SubmitIndex and identifier: the record, the numbers
//	of its attempts (u32) and callbacks (u32), their records
//
// Each record is its length (u32) and its CBOR encoding, as in snapshots.
// Numbers are big-endian. The name of the blob is its SHA-256.
const (
	archiveMagic  = "BERTHARC"
	archiveFormat = 1
	archiveHead   = len(archiveMagic) + 2
	archiveTop    = 16 + 4 + 4
	maxArchive    = 256 << 20 // Limit of the unpacked size.
)

// archiveFile returns the blob of executions, its name, and the sum of the
// hashes of its records. The same executions yield the same bytes.
func (v archiver) archiveFile(ids []compute.ExecutionID, month int) (data []byte, name compute.Hash, s store.Sum) {
	places := make([]historyKey, 0, len(ids))
	for _, id := range ids {
		e, _ := v.view.executions.Get(id)
		places = append(places, historyKeyOf(e))
	}
	slices.SortFunc(places, byHistoryKey)
	body := binary.BigEndian.AppendUint32(slices.Clone(v.view.meta.Cluster[:]), uint32(month))
	body = binary.BigEndian.AppendUint32(body, uint32(len(ids)))
	for _, p := range places {
		var text []byte
		var at int // Offset behind the execution's record.
		attempts, callbacks := v.recordsOf(p.id, func(encoded []byte) {
			s.Add(hashOfEncoded(encoded, at == 0))
			text = append(binary.BigEndian.AppendUint32(text, uint32(len(encoded))), encoded...)
			if at == 0 {
				at = len(text)
			}
		})
		body = append(body, text[:at]...)
		body = binary.BigEndian.AppendUint32(body, uint32(attempts))
		body = binary.BigEndian.AppendUint32(body, uint32(callbacks))
		body = append(body, text[at:]...)
	}
	out := bytes.NewBuffer(binary.BigEndian.AppendUint16([]byte(archiveMagic), archiveFormat))
	z := gzip.NewWriter(out)
	_, err := z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil {
		panic(fmt.Errorf("write archive: %w", err)) // A write to a buffer does not fail.
	}
	return out.Bytes(), sha256.Sum256(out.Bytes()), s
}

// hashOfEncoded is hashOf for an encoded record.
func hashOfEncoded(encoded []byte, execution bool) compute.Hash {
	if execution {
		encoded = appendLean(nil, encoded)
	}
	return sha256.Sum256(encoded)
}

// ArchiveFile is the content of an archive's blob. It is immutable and safe for
// concurrent use.
type ArchiveFile struct {
	body  []byte
	month int
	sum   store.Sum
	rows  []archivedRow // By place.
	byID  map[compute.ExecutionID]int
}

// archivedRow is the position of an execution in the body of an archive.
type archivedRow struct {
	place     historyKey
	record    []byte // A part of the body.
	attempts  [][]byte
	callbacks int
}

// Case is an execution. If it comes from an archive, Case has its attempts,
// oldest first. Otherwise the attempts are in the state.
type Case struct {
	Execution *compute.Execution
	Attempts  []*compute.Attempt
	Archived  bool
}

var errArchive = errors.New("archive is damaged")

// ReadArchive returns the content of an archive's blob. The blob must be the
// one that a names and match the record a.
func ReadArchive(a *Archive, data []byte) (*ArchiveFile, error) {
	f, err := readArchive(a, data)
	if err != nil {
		return nil, fmt.Errorf("archive %d (%s): %w", a.Number, MonthText(a.Month), err)
	}
	return f, nil
}

func readArchive(a *Archive, data []byte) (*ArchiveFile, error) {
	switch {
	case sha256.Sum256(data) != a.Blob:
		return nil, fmt.Errorf("%w: its SHA-256 is another one", errArchive)
	case len(data) < archiveHead || string(data[:len(archiveMagic)]) != archiveMagic:
		return nil, fmt.Errorf("%w: this is none", errArchive)
	}
	if format := binary.BigEndian.Uint16(data[len(archiveMagic):]); format != archiveFormat {
		return nil, fmt.Errorf("it has format %d and this version reads %d: another version of the program wrote it",
			format, archiveFormat)
	}
	z, err := gzip.NewReader(bytes.NewReader(data[archiveHead:]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errArchive, err)
	}
	body, err := io.ReadAll(io.LimitReader(z, maxArchive))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errArchive, err)
	}
	f := &ArchiveFile{body: body}
	if err := f.index(); err != nil {
		return nil, err
	}
	if len(f.rows) != a.Executions || f.sum != store.Sum(a.Sum) || f.month != a.Month {
		return nil, fmt.Errorf("%w: it does not hold what the state says", errArchive)
	}
	return f, nil
}

// Verify reads the draft in the way of later readers: executions that could not
// be read must not leave the state.
func (d *ArchiveDraft) Verify() (err error) {
	f, err := ReadArchive(&Archive{
		Blob: d.Command.Blob, Month: d.Command.Month, Sum: d.Command.Sum,
		Executions: len(d.Command.Executions) / len(compute.UUID{}),
	}, d.Blob)
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", errArchive, v)
		}
	}()
	for i := range f.rows {
		f.rows[i].decode()
	}
	return nil
}

// index finds the records in the body.
func (f *ArchiveFile) index() error {
	rest := f.body
	bad := false
	take := func(n int) (out []byte) {
		if bad = bad || n > len(rest); bad {
			return nil
		}
		out, rest = rest[:n], rest[n:]
		return out
	}
	number := func() int {
		b := take(4)
		if b == nil {
			return 0
		}
		return int(binary.BigEndian.Uint32(b))
	}
	record := func(execution bool) []byte {
		b := take(number())
		f.sum.Add(hashOfEncoded(b, execution))
		return b
	}
	take(archiveTop - 8)
	f.month = number()
	n := number()
	f.byID = make(map[compute.ExecutionID]int, min(n, MaxArchived))
	for i := 0; i < n && !bad; i++ {
		row := archivedRow{record: record(true)}
		var e compute.Execution
		if bad = bad || !partialExecution(row.record, &e); bad {
			break
		}
		row.place = historyKeyOf(&e)
		attempts := number()
		row.callbacks = number()
		for k := 0; k < attempts && !bad; k++ {
			row.attempts = append(row.attempts, record(false))
		}
		for k := 0; k < row.callbacks && !bad; k++ {
			record(false)
		}
		f.byID[e.ID] = len(f.rows)
		f.rows = append(f.rows, row)
	}
	if bad || len(rest) > 0 {
		return fmt.Errorf("%w: its records are cut or have no order", errArchive)
	}
	return nil
}

// Size returns the approximate memory use of f in bytes.
func (f *ArchiveFile) Size() int { return len(f.body) + 256*len(f.rows) }

// Case returns the execution id of f.
func (f *ArchiveFile) Case(id compute.ExecutionID) (*Case, bool) {
	i, ok := f.byID[id]
	if !ok {
		return nil, false
	}
	return f.rows[i].decode(), true
}

// Family returns the execution id, its sub-executions, and its parent, as far
// as they are in f. It returns none when the execution is not in f.
func (f *ArchiveFile) Family(id compute.ExecutionID) []*Case {
	c, ok := f.Case(id)
	if !ok {
		return nil
	}
	out := []*Case{c}
	if parent, ok := f.Case(c.Execution.Parent); ok {
		out = append(out, parent)
	}
	for _, child := range c.Execution.Children() {
		if c, ok := f.Case(child); ok {
			out = append(out, c)
		}
	}
	return out
}

// decode returns the execution of a row.
func (r *archivedRow) decode() *Case {
	c := &Case{Execution: store.MustDecode[compute.Execution](r.record), Archived: true}
	for _, text := range r.attempts {
		c.Attempts = append(c.Attempts, store.MustDecode[compute.Attempt](text))
	}
	return c
}

// matches reports whether f selects the execution of a row.
func (r *archivedRow) matches(f HistoryFilter) bool {
	if f == (HistoryFilter{}) {
		return true
	}
	var e compute.Execution
	return partialExecution(r.record, &e) && f.matches(&e)
}
