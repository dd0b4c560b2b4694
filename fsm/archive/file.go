package archive

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"berth/compute"
	"berth/fsm/partial"
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
	magic    = "BERTHARC"
	layout   = 1
	headSize = len(magic) + 2
	topSize  = 16 + 4 + 4
	maxBody  = 256 << 20 // Limit of the unpacked size.
)

// Pack returns the blob of the executions at places, its name, and the sum of the hashes of
// its records. The same executions yield the same bytes. Records visits the encodings of an
// execution, of its attempts and of its callbacks, and returns how many of the latter two
// there are.
func Pack(
	cluster compute.UUID, month int, places []Place,
	records func(id compute.ExecutionID, visit func(encoded []byte)) (attempts, callbacks int),
) (data []byte, name compute.Hash, s store.Sum) {
	slices.SortFunc(places, ByPlace)
	body := binary.BigEndian.AppendUint32(slices.Clone(cluster[:]), uint32(month))
	body = binary.BigEndian.AppendUint32(body, uint32(len(places)))
	for _, p := range places {
		var text []byte
		var at int // Offset behind the execution's record.
		attempts, callbacks := records(p.ID, func(encoded []byte) {
			s.Add(HashOf(encoded, at == 0))
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
	out := bytes.NewBuffer(binary.BigEndian.AppendUint16([]byte(magic), layout))
	z := gzip.NewWriter(out)
	_, err := z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil {
		panic(fmt.Errorf("write archive: %w", err)) // A write to a buffer does not fail.
	}
	return out.Bytes(), sha256.Sum256(out.Bytes()), s
}

// HashOf returns the hash of an encoded record, as the state counts it: that of an execution
// is without its code.
func HashOf(encoded []byte, execution bool) compute.Hash {
	if execution {
		encoded = partial.AppendLean(nil, encoded)
	}
	return sha256.Sum256(encoded)
}

// File is the content of an archive's blob. It is immutable and safe for
// concurrent use.
type File struct {
	body  []byte
	month int
	sum   store.Sum
	rows  []Row // By place.
	byID  map[compute.ExecutionID]int
}

// Row is the position of an execution in the body of an archive.
type Row struct {
	Place     Place
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

var errDamaged = errors.New("archive is damaged")

// Read returns the content of an archive's blob. The blob must be the
// one that a names and match the record a.
func Read(a *Record, data []byte) (*File, error) {
	f, err := read(a, data)
	if err != nil {
		return nil, fmt.Errorf("archive %d (%s): %w", a.Number, MonthText(a.Month), err)
	}
	return f, nil
}

func read(a *Record, data []byte) (*File, error) {
	switch {
	case sha256.Sum256(data) != a.Blob:
		return nil, fmt.Errorf("%w: its SHA-256 is another one", errDamaged)
	case len(data) < headSize || string(data[:len(magic)]) != magic:
		return nil, fmt.Errorf("%w: this is none", errDamaged)
	}
	if format := binary.BigEndian.Uint16(data[len(magic):]); format != layout {
		return nil, fmt.Errorf("it has format %d and this version reads %d: another version of the program wrote it",
			format, layout)
	}
	z, err := gzip.NewReader(bytes.NewReader(data[headSize:]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	body, err := io.ReadAll(io.LimitReader(z, maxBody))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	f := &File{body: body}
	if err := f.index(); err != nil {
		return nil, err
	}
	if len(f.rows) != a.Executions || f.sum != store.Sum(a.Sum) || f.month != a.Month {
		return nil, fmt.Errorf("%w: it does not hold what the state says", errDamaged)
	}
	return f, nil
}

// index finds the records in the body.
func (f *File) index() error {
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
		f.sum.Add(HashOf(b, execution))
		return b
	}
	take(topSize - 8)
	f.month = number()
	n := number()
	f.byID = make(map[compute.ExecutionID]int, min(n, MaxExecutions))
	for i := 0; i < n && !bad; i++ {
		row := Row{record: record(true)}
		var e compute.Execution
		if bad = bad || !partial.Execution(row.record, &e); bad {
			break
		}
		row.Place = PlaceOf(&e)
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
		return fmt.Errorf("%w: its records are cut or have no order", errDamaged)
	}
	return nil
}

// Unpacked returns the bytes of the records in f.
func (f *File) Unpacked() int { return len(f.body) }

// Size returns the approximate memory use of f in bytes.
func (f *File) Size() int { return len(f.body) + 256*len(f.rows) }

// Case returns the execution id of f.
func (f *File) Case(id compute.ExecutionID) (*Case, bool) {
	i, ok := f.byID[id]
	if !ok {
		return nil, false
	}
	return f.rows[i].Decode(), true
}

// Family returns the execution id, its sub-executions, and its parent, as far
// as they are in f. It returns none when the execution is not in f.
func (f *File) Family(id compute.ExecutionID) []*Case {
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

// Decode returns the execution of a row.
func (r *Row) Decode() *Case {
	c := &Case{Execution: store.MustDecode[compute.Execution](r.record), Archived: true}
	for _, text := range r.attempts {
		c.Attempts = append(c.Attempts, store.MustDecode[compute.Attempt](text))
	}
	return c
}

// Partial decodes the part of the execution of a row that filters need.
func (r *Row) Partial(e *compute.Execution) bool { return partial.Execution(r.record, e) }

// Rows returns an organization's part of f.
func (f *File) Rows(org compute.OrgID) []Row {
	from := sort.Search(len(f.rows), func(i int) bool { return compareIDs(f.rows[i].Place.Org.UUID, org.UUID) >= 0 })
	rows := f.rows[from:]
	return rows[:sort.Search(len(rows), func(i int) bool { return compareIDs(rows[i].Place.Org.UUID, org.UUID) > 0 })]
}
