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

// BlockLines is the number of lines of an organization's ledger that are sealed
// together.
const BlockLines = 64

// The encoding of a line ends with the key of its hash, HashField, and the hash:
// hashTail bytes.
const (
	HashField = 12
	hashTail  = 1 + 2 + sha256.Size
)

// Store has the ledgers of all organizations. The newest lines of each are
// records. Older lines are in sealed blocks, each as its difference from the line
// before. A hash that follows from the chain is not stored.
type Store struct {
	store.Records[Key, compute.LedgerEntry]

	Sealed      store.PackedMap // By organization and the sequence number of the first line.
	SealedLines int             // Lines in sealed blocks.
	dictionary  *store.Dictionary
}

// New returns a store without lines.
func New() Store {
	return Store{
		Records: store.NewRecords(byKey, func(e *compute.LedgerEntry) Key { return Key{e.Org.UUID, e.Seq} }),
		Sealed:  store.NewPackedMap(keyWidth, false), dictionary: store.NewDictionary(),
	}
}

// Share makes the current content safe to hand out.
func (b *Store) Share() { b.Sealed.Share() }

// Freeze makes a copied store, which was shared before, read-only.
func (b *Store) Freeze() {
	store.Freeze(&b.Records)
	b.Sealed.Freeze()
}

// Len returns the number of lines.
func (b *Store) Len() int { return b.Records.Len() + b.SealedLines }

// Digest returns the number of lines and the sum of their hashes.
func (b *Store) Digest() (int, store.Sum) {
	_, s := b.Records.Digest()
	return b.Len(), s
}

// Put appends a line to a ledger.
func (b *Store) Put(e *compute.LedgerEntry) { b.put(e, store.MustEncode(e)) }

// Append appends a line to a ledger whose last line has the hash before, and sets its hash as
// Chain does.
func (b *Store) Append(before compute.Hash, e *compute.LedgerEntry) {
	e.Hash = compute.Hash{}
	text := store.MustEncode(e)
	e.Hash = chained(before, text)
	copy(text[len(text)-sha256.Size:], e.Hash[:])
	b.put(e, text)
}

// put appends a line with its encoding to a ledger.
func (b *Store) put(e *compute.LedgerEntry, text []byte) {
	b.Records.PutEncoded(e, text)
	if e.Seq%BlockLines == 0 {
		b.seal(e.Org.UUID, e.Seq-BlockLines+1)
	}
}

// seal makes a block of an organization's lines from first on, if all of them
// are records.
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
		b.Records.Forget(Key{org, first + uint64(i)})
	}
}

// block returns lines as a sealed block: the length of the first line (uvarint),
// the first line, and the difference of each other line. A line whose hash does
// not follow from the chain keeps its hash; with whole there is none.
func (b *Store) block(lines [][]byte, whole bool) []byte {
	return b.appendBlock(nil, new(Buffers), lines, whole)
}

// Buffers are buffers for two lines.
type Buffers struct{ before, short []byte }

// appendBlock appends lines as a sealed block.
func (b *Store) appendBlock(out []byte, buffers *Buffers, lines [][]byte, whole bool) []byte {
	out = append(binary.AppendUvarint(out, uint64(len(lines[0]))), lines[0]...)
	buffers.before = shorten(buffers.before[:0], lines[0])
	for i, text := range lines[1:] {
		buffers.short = shorten(buffers.short[:0], text)
		next := buffers.short
		if !whole && chained(hashIn(lines[i]), text) != hashIn(text) {
			next = text // The chain is broken here.
		}
		out = store.AppendDiff(out, b.dictionary, buffers.before, next)
		buffers.before, buffers.short = buffers.short, buffers.before
	}
	return out
}

// read yields the lines of a sealed block. They are valid only during the call.
func (b *Store) read(block []byte, yield func(text []byte) bool) bool {
	n, size := binary.Uvarint(block)
	text, rest := bytes.Clone(block[size:size+int(n)]), block[size+int(n):]
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

// hashIn returns the hash at the end of the encoding of a line.
func hashIn(text []byte) compute.Hash { return compute.Hash(text[len(text)-sha256.Size:]) }

// shorten appends the encoding of a line with an empty hash.
func shorten(dst, text []byte) []byte {
	return append(append(dst, text[:len(text)-hashTail]...), HashField, store.MajorBytes<<5)
}

// lengthen appends the encoding that shorten was given.
func lengthen(dst, short []byte, before compute.Hash) []byte {
	dst = append(append(dst, short[:len(short)-1]...), store.MajorBytes<<5|24, sha256.Size)
	dst = append(dst, make([]byte, sha256.Size)...)
	hash := chained(before, dst)
	copy(dst[len(dst)-sha256.Size:], hash[:])
	return dst
}

// chained returns the hash of a line by its encoding, as Chain does.
func chained(before compute.Hash, text []byte) compute.Hash {
	const usual = 512 // Bytes: a longer line escapes to the heap.
	buffer := make([]byte, 0, usual)
	buffer = append(append(buffer, before[:]...), text[:len(text)-sha256.Size]...)
	return sha256.Sum256(append(buffer, make([]byte, sha256.Size)...))
}

// Builder returns a builder of pages of sealed blocks.
func (b *Store) Builder() store.Builder { return store.NewBuilder(keyWidth, false) }

// Load appends pages of sealed blocks, the hashes of whose lines add up to sum.
// It reports false if they do not follow all others.
func (b *Store) Load(pages []store.Page, sum *store.Sum) bool {
	return b.Records.Load(nil, sum) && b.Sealed.Load(pages)
}

// Each visits the encoding of every line, by organization and sequence.
func (b *Store) Each(visit func(encoded []byte)) {
	b.Visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

// Visit is Each that ends when yield returns false.
func (b *Store) Visit(yield func(encoded []byte) bool) {
	next, stop := iter.Pull2(b.Records.All())
	defer stop()
	k, e, more := next()
	goes := true
	b.Sealed.Scan(make([]byte, keyWidth), func(key, block []byte) bool {
		for first := keyFrom(key); goes && more && byKey(k, first) < 0; k, e, more = next() {
			goes = yield(store.MustEncode(e))
		}
		goes = goes && b.read(block, yield)
		return goes
	})
	for ; goes && more; _, e, more = next() {
		goes = yield(store.MustEncode(e))
	}
}

// Values yields every line, by organization and sequence.
func (b *Store) Values() iter.Seq[*compute.LedgerEntry] {
	return func(yield func(*compute.LedgerEntry) bool) {
		goes := true
		b.Each(func(text []byte) {
			goes = goes && yield(store.MustDecode[compute.LedgerEntry](text))
		})
	}
}

// texts yields the encoded lines of an organization from sequence number from
// on. They are valid only during the call.
func (b *Store) texts(org compute.OrgID, from uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		from = max(from, 1)
		goes := true
		start := Key{org.UUID, (from-1)/BlockLines*BlockLines + 1}
		b.Sealed.Scan(keyBytes(start), func(key, block []byte) bool {
			first := keyFrom(key)
			if first.Owner != org.UUID {
				return false
			}
			n := first.Seq
			goes = b.read(block, func(text []byte) bool {
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

// Entries yields the lines of an organization from sequence number from on.
func (b *Store) Entries(org compute.OrgID, from uint64) iter.Seq[*compute.LedgerEntry] {
	return func(yield func(*compute.LedgerEntry) bool) {
		for text := range b.texts(org, from) {
			if !yield(store.MustDecode[compute.LedgerEntry](text)) {
				return
			}
		}
	}
}

// Key is the place of a line: its organization and sequence number.
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

// AppendBlock appends the key and the sealed block of lines from first on, whose
// chain is intact.
func (b *Store) AppendBlock(
	key, block []byte, buffers *Buffers, org compute.OrgID, first uint64, lines [][]byte,
) (k, packed []byte) {
	key = append(key, keyBytes(Key{org.UUID, first})...)
	return key, b.appendBlock(block, buffers, lines, true)
}

// AddSealed counts the lines of sealed blocks that Load has added.
func (b *Store) AddSealed(n int) { b.SealedLines += n }
