package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"iter"

	"berth/compute"
	"berth/fsm/store"
)

// chapterLines is how many lines of an organization's ledger are closed
// together.
const BlockLines = 64

// hashTail is what the encoding of a line ends with: the key of its hash, and
// the hash.
const (
	HashField = 12
	hashTail  = 1 + 2 + sha256.Size
)

// books is the ledgers of all organizations. The newest lines of each are
// records; the others lie in chapters, each line as what differs from the line
// before it. A line that the chain follows from is kept without its hash.
type Store struct {
	store.Records[Key, compute.LedgerEntry]

	Sealed      store.PackedMap // By organization and the sequence number of the first line.
	SealedLines int             // In chapters.
	dictionary  *store.Dictionary
}

func New() Store {
	return Store{
		Records: store.NewRecords(byKey, func(e *compute.LedgerEntry) Key { return Key{e.Org.UUID, e.Seq} }),
		Sealed:  store.NewPackedMap(keyWidth, false), dictionary: store.NewDictionary(),
	}
}

func (b *Store) Share() {
	b.Records.Share()
	b.Sealed.Share()
}

func (b *Store) Freeze() {
	b.Records.Freeze()
	b.Sealed.Freeze()
}

func (b *Store) Len() int { return b.Records.Len() + b.SealedLines }

func (b *Store) Digest() (int, store.Sum) {
	_, s := b.Records.Digest()
	return b.Len(), s
}

// put adds a line to a ledger.
func (b *Store) Put(e *compute.LedgerEntry) {
	b.Records.Put(e)
	if e.Seq%BlockLines == 0 {
		b.seal(e.Org.UUID, e.Seq-BlockLines+1)
	}
}

// close makes a chapter of an organization's lines from first on, if they are
// all there.
func (b *Store) seal(org compute.UUID, first uint64) {
	lines := make([][]byte, 0, BlockLines)
	for k, e := range b.Records.From(Key{org, first}) {
		if k != (Key{org, first + uint64(len(lines))}) || len(lines) == BlockLines {
			break
		}
		lines = append(lines, store.MustEncode(e))
	}
	if len(lines) < BlockLines {
		return
	}
	b.Sealed.Set(keyBytes(Key{org, first}), b.block(lines, false))
	b.SealedLines += BlockLines
	for i := range lines {
		b.Records.Remove(Key{org, first + uint64(i)})
	}
}

// chapter returns lines as a chapter: the length of the first (uvarint), the
// first, and what differs for each other. One that the chain does not lead to
// keeps its hash; that there is none may be known.
func (b *Store) block(lines [][]byte, whole bool) []byte {
	return b.appendBlock(nil, new(Buffers), lines, whole)
}

// chapterRoom is room for two lines.
type Buffers struct{ before, short []byte }

// appendChapter appends lines as a chapter.
func (b *Store) appendBlock(out []byte, room *Buffers, lines [][]byte, whole bool) []byte {
	out = append(binary.AppendUvarint(out, uint64(len(lines[0]))), lines[0]...)
	room.before = shorten(room.before[:0], lines[0])
	for i, text := range lines[1:] {
		room.short = shorten(room.short[:0], text)
		next := room.short
		if !whole && chained(hashIn(lines[i]), text) != hashIn(text) {
			next = text // The chain is broken here.
		}
		out = store.AppendDiff(out, b.dictionary, room.before, next)
		room.before, room.short = room.short, room.before
	}
	return out
}

// read yields the lines of a chapter. They are only lent.
func (b *Store) read(chapter []byte, yield func(text []byte) bool) bool {
	n, size := binary.Uvarint(chapter)
	text, rest := bytes.Clone(chapter[size:size+int(n)]), chapter[size+int(n):]
	before := shorten(nil, text)
	var short []byte
	for {
		if !yield(text) {
			return false
		}
		if len(rest) == 0 {
			return true
		}
		short, rest = store.ApplyDiff(short[:0], b.dictionary, before, rest)
		hash := hashIn(text)
		if bytes.HasSuffix(short, []byte{HashField, store.MajorBytes << 5}) {
			text = lengthen(text[:0], short, hash)
			before, short = short, before
			continue
		}
		text = append(text[:0], short...)
		before = shorten(before[:0], text)
	}
}

// hashIn returns the hash that the encoding of a line ends with.
func hashIn(text []byte) compute.Hash { return compute.Hash(text[len(text)-sha256.Size:]) }

// shorten appends the encoding of a line with an empty hash.
func shorten(dst, text []byte) []byte {
	return append(append(dst, text[:len(text)-hashTail]...), HashField, store.MajorBytes<<5)
}

// lengthen appends the encoding that shorten has shortened.
func lengthen(dst, short []byte, before compute.Hash) []byte {
	dst = append(append(dst, short[:len(short)-1]...), store.MajorBytes<<5|24, sha256.Size)
	dst = append(dst, make([]byte, sha256.Size)...)
	hash := chained(before, dst)
	copy(dst[len(dst)-sha256.Size:], hash[:])
	return dst
}

// chained returns the hash of a line by its encoding, as chain does.
func chained(before compute.Hash, text []byte) compute.Hash {
	const usual = 512 // Bytes: a line that is longer goes to the heap.
	room := make([]byte, 0, usual)
	room = append(append(room, before[:]...), text[:len(text)-sha256.Size]...)
	return sha256.Sum256(append(room, make([]byte, sha256.Size)...))
}

// binder returns what makes pages of chapters.
func (b *Store) Builder() store.Builder { return store.NewBuilder(keyWidth, false) }

// load adds pages of chapters, the sum of whose lines' hashes is sum. It reports
// false when they are not behind all others.
func (b *Store) Load(pages []store.Page, sum *store.Sum) bool {
	return b.Records.Load(nil, sum) && b.Sealed.Load(pages)
}

// each visits the encoding of every line, by organization and sequence.
func (b *Store) Each(visit func(encoded []byte)) {
	b.Visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

// visit yields what each visits, until yield returns false.
func (b *Store) Visit(yield func(encoded []byte) bool) {
	next, stop := iter.Pull2(b.Records.All())
	defer stop()
	k, e, more := next()
	goes := true
	b.Sealed.Scan(make([]byte, keyWidth), func(key, chapter []byte) bool {
		for first := keyFrom(key); goes && more && byKey(k, first) < 0; k, e, more = next() {
			goes = yield(store.MustEncode(e))
		}
		goes = goes && b.read(chapter, yield)
		return goes
	})
	for ; goes && more; _, e, more = next() {
		goes = yield(store.MustEncode(e))
	}
}

// values yields every line, by organization and sequence.
func (b *Store) Values() iter.Seq[*compute.LedgerEntry] {
	return func(yield func(*compute.LedgerEntry) bool) {
		goes := true
		b.Each(func(text []byte) {
			goes = goes && yield(store.MustDecode[compute.LedgerEntry](text))
		})
	}
}

// texts yields the encoded lines of an organization from sequence number from
// on. They are only lent.
func (b *Store) texts(org compute.OrgID, from uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		from = max(from, 1)
		goes := true
		start := Key{org.UUID, (from-1)/BlockLines*BlockLines + 1}
		b.Sealed.Scan(keyBytes(start), func(key, chapter []byte) bool {
			first := keyFrom(key)
			if first.Owner != org.UUID {
				return false
			}
			n := first.Seq
			goes = b.read(chapter, func(text []byte) bool {
				n++
				return n <= from || yield(text)
			})
			return goes
		})
		if !goes {
			return
		}
		for k, e := range b.Records.From(Key{org.UUID, from}) {
			if k.Owner != org.UUID || !yield(store.MustEncode(e)) {
				return
			}
		}
	}
}

// of yields the lines of an organization from sequence number from on.
func (b *Store) Of(org compute.OrgID, from uint64) iter.Seq[*compute.LedgerEntry] {
	return func(yield func(*compute.LedgerEntry) bool) {
		for text := range b.texts(org, from) {
			if !yield(store.MustDecode[compute.LedgerEntry](text)) {
				return
			}
		}
	}
}

// entryKey is the place of a line.
type Key struct {
	Owner compute.UUID
	Seq   uint64
}

const keyWidth = 16 + 8

func byKey(a, b Key) int {
	return cmp.Or(bytes.Compare(a.Owner[:], b.Owner[:]), cmp.Compare(a.Seq, b.Seq))
}

func keyBytes(k Key) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, keyWidth), k.Owner[:]...), k.Seq)
}

func keyFrom(b []byte) (k Key) {
	k.Seq = binary.BigEndian.Uint64(b[copy(k.Owner[:], b):])
	return k
}

// appendSealed appends the key and the chapter of lines from first on, whose
// chain is whole.
func (b *Store) AppendBlock(key, chapter []byte, room *Buffers, org compute.OrgID, first uint64, lines [][]byte) (k, packed []byte) {
	key = append(key, keyBytes(Key{org.UUID, first})...)
	return key, b.appendBlock(chapter, room, lines, true)
}

// loadLines counts lines of chapters that Load has added.
func (b *Store) AddSealed(n int) { b.SealedLines += n }
