package store

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// Limits of what records that rest are made from.
const (
	maxEntries         = 1 << 16
	maxDictionaryBytes = 4 << 20 // All words together.
	minEntry           = 4       // Bytes: shorter items are their own best word.
	maxEntry           = 512

	maxBases   = 4096
	baseShapes = 64   // A record's shape is how many fields it has.
	baseUses   = 1024 // After that a newer base is nearer.
)

// words is a list that only grows. Any number of goroutines may use it.
type Dictionary struct {
	list atomic.Pointer[[][]byte]

	mu    sync.RWMutex
	ids   map[string]uint64
	bytes int
}

func NewDictionary() *Dictionary {
	w := &Dictionary{ids: make(map[string]uint64)}
	w.list.Store(new([][]byte))
	return w
}

// at returns the word i, which nobody may write to.
func (w *Dictionary) At(i uint64) []byte { return (*w.list.Load())[i] }

// number returns the number of a word, which is added if it is not there and
// there is room.
func (w *Dictionary) Number(word []byte) (uint64, bool) {
	w.mu.RLock()
	i, ok := w.ids[string(word)]
	w.mu.RUnlock()
	if ok || len(word) > maxEntry {
		return i, ok
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.ids[string(word)]; ok {
		return i, true
	}
	if len(w.ids) == maxEntries || w.bytes+len(word) > maxDictionaryBytes {
		return 0, false
	}
	w.ids[string(word)] = uint64(len(w.ids))
	w.bytes += len(word)
	return w.add(word), true
}

// add appends a word. Who reads the list meanwhile sees the front of the same
// array, which is never written again. The caller holds mu.
func (w *Dictionary) add(word []byte) uint64 {
	old := *w.list.Load()
	list := append(old, bytes.Clone(word))
	w.list.Store(&list)
	return uint64(len(old))
}

// packer turns the encodings of records of one table into what differs from
// others of them, and back. What it makes depends on what it has seen, so it
// is for memory alone: two replicas may keep the same record in two ways. Any
// number of goroutines may use it.
type packer struct {
	frequent   uint64 // The fields whose items many records have, a bit for each.
	dictionary *Dictionary
	bases      atomic.Pointer[[]base] // Only grows.
	buffers    sync.Pool              // Of *[]byte.

	mu     sync.Mutex
	shapes [baseShapes]struct {
		base uint64 // Number of the base + 1.
		uses int
	}
}

// newPacker returns a packer; often names the fields whose items many records
// have.
func NewPacker(often ...uint) *packer {
	p := &packer{dictionary: NewDictionary()}
	p.bases.Store(new([]base))
	for _, key := range often {
		p.frequent |= 1 << key
	}
	return p
}

// base is a record that others are made from, taken apart once.
type base []part

type part struct {
	key  uint64
	item []byte
}

// newBase takes a record apart. It returns nil for what is none.
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

// base returns the base for a record + 1, which may be the record itself, or 0
// when there is none.
func (p *packer) base(record []byte) uint64 {
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
		bases = append(bases, next) // Who reads the list meanwhile sees the front of the same array.
		p.bases.Store(&bases)
		shape.base = uint64(len(bases))
	}
	return shape.base
}

// old returns the fields of a base by its number + 1.
func (p *packer) old(n uint64) baseFields {
	return baseFields{parts: (*p.bases.Load())[n-1], apart: true}
}

// pack appends what unpack makes the record of, with the same key: the number
// of its base and what differs from that, or 0 and the record.
func (p *packer) Pack(dst, key, record []byte) []byte {
	start := len(dst)
	if base := p.base(record); base != 0 {
		d := delta{dictionary: p.dictionary}
		d.begin(key)
		out, ok := d.diff(binary.AppendUvarint(dst, base), p.old(base), record, p.frequent)
		room, _ := p.buffers.Get().(*[]byte)
		if room == nil {
			room = new([]byte)
		}
		if ok {
			*room = p.unpack((*room)[:0], key, out[start:])
			ok = bytes.Equal(*room, record)
		}
		p.buffers.Put(room)
		if ok {
			return out
		}
		dst = out[:start]
	}
	return append(append(dst, 0), record...)
}

// unpack appends the record that pack was given.
func (p *packer) unpack(dst, key, packed []byte) []byte {
	base, rest := takeUvarint(packed)
	if base == 0 {
		return append(dst, rest...)
	}
	d := delta{dictionary: p.dictionary}
	d.begin(key)
	dst, _ = d.merge(dst, p.old(base), rest)
	return dst
}
