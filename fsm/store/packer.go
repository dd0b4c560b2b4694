package store

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// Limits of the memory that packing shares between records.
const (
	maxEntries         = 1 << 16
	maxDictionaryBytes = 4 << 20 // All entries together.
	minEntry           = 4       // Bytes: a shorter item is stored as it is.
	maxEntry           = 512

	maxBases   = 4096
	baseShapes = 64   // The shape of a record is its number of fields.
	baseUses   = 1024 // Then a newer base is more similar.
)

// Dictionary numbers byte strings that many records have. It only grows. Any
// number of goroutines may use it.
type Dictionary struct {
	list atomic.Pointer[[][]byte]

	mu    sync.RWMutex
	ids   map[string]uint64
	bytes int
}

// NewDictionary returns an empty dictionary.
func NewDictionary() *Dictionary {
	w := &Dictionary{ids: make(map[string]uint64)}
	w.list.Store(new([][]byte))
	return w
}

// At returns entry i. The caller must not write to it.
func (w *Dictionary) At(i uint64) []byte { return (*w.list.Load())[i] }

// Number returns the number of an entry. An unknown entry is added while the
// limits allow it.
func (w *Dictionary) Number(entry []byte) (uint64, bool) {
	w.mu.RLock()
	i, ok := w.ids[string(entry)]
	w.mu.RUnlock()
	if ok || len(entry) > maxEntry {
		return i, ok
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.ids[string(entry)]; ok {
		return i, true
	}
	if len(w.ids) == maxEntries || w.bytes+len(entry) > maxDictionaryBytes {
		return 0, false
	}
	w.ids[string(entry)] = uint64(len(w.ids))
	w.bytes += len(entry)
	return w.add(entry), true
}

// add appends an entry. Concurrent readers see the front of the same array,
// which is never written again. The caller holds mu.
func (w *Dictionary) add(entry []byte) uint64 {
	old := *w.list.Load()
	list := append(old, bytes.Clone(entry))
	w.list.Store(&list)
	return uint64(len(old))
}

// Packer stores the encodings of records of one table as differences from other
// records. The result depends on the records packed before, so it is for memory
// alone: two replicas may pack the same record differently. Any number of
// goroutines may use it.
type Packer struct {
	frequent   uint64 // The fields whose items many records share, a bit for each.
	dictionary *Dictionary
	bases      atomic.Pointer[[]base] // Only grows.
	buffers    sync.Pool              // Has *[]byte values for reuse.

	mu     sync.Mutex
	shapes [baseShapes]struct {
		base uint64 // Number of the base + 1.
		uses int
	}
}

// NewPacker returns a packer. The fields named by frequent have items that many
// records share.
func NewPacker(frequent ...uint) *Packer {
	p := &Packer{dictionary: NewDictionary()}
	p.bases.Store(new([]base))
	for _, key := range frequent {
		p.frequent |= 1 << key
	}
	return p
}

// base is a record that others are packed against, split into fields.
type base []part

type part struct {
	key  uint64
	item []byte
}

// newBase splits a record into fields. It returns nil if it is not a record.
func newBase(record []byte) base {
	f, n := FieldsOf(bytes.Clone(record))
	b := make(base, 0, min(n, maxElements))
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		b = append(b, part{key, item})
	}
	if f.Bad || f.left > 0 {
		return nil
	}
	return b
}

// base returns the number of the base for a record + 1, or 0 if there is none.
// The record may become a base itself.
func (p *Packer) base(record []byte) uint64 {
	_, n := FieldsOf(record)
	p.mu.Lock()
	defer p.mu.Unlock()
	shape := &p.shapes[min(n, baseShapes-1)]
	if shape.uses++; shape.base != 0 && shape.uses < baseUses {
		return shape.base
	}
	shape.uses = 0
	bases := *p.bases.Load()
	if len(bases) == maxBases {
		return shape.base
	}
	if next := newBase(record); next != nil {
		bases = append(bases, next) // Concurrent readers see the front of the same array.
		p.bases.Store(&bases)
		shape.base = uint64(len(bases))
	}
	return shape.base
}

// old returns the fields of a base by its number + 1.
func (p *Packer) old(n uint64) baseFields {
	return baseFields{parts: (*p.bases.Load())[n-1], apart: true}
}

// Pack appends the packed form of a record: the number of its base and the
// difference from it, or 0 and the record. Unpack needs the same key.
func (p *Packer) Pack(dst, key, record []byte) []byte {
	start := len(dst)
	if base := p.base(record); base != 0 {
		d := delta{dictionary: p.dictionary}
		d.begin(key)
		out, ok := d.diff(binary.AppendUvarint(dst, base), p.old(base), record, p.frequent)
		buffer, _ := p.buffers.Get().(*[]byte)
		if buffer == nil {
			buffer = new([]byte)
		}
		if ok {
			*buffer = p.unpack((*buffer)[:0], key, out[start:])
			ok = bytes.Equal(*buffer, record)
		}
		p.buffers.Put(buffer)
		if ok {
			return out
		}
		dst = out[:start]
	}
	return append(append(dst, 0), record...)
}

// unpack appends the record that Pack was given.
func (p *Packer) unpack(dst, key, packed []byte) []byte {
	base, rest := takeUvarint(packed)
	if base == 0 {
		return append(dst, rest...)
	}
	d := delta{dictionary: p.dictionary}
	d.begin(key)
	dst, _ = d.merge(dst, p.old(base), rest)
	return dst
}
