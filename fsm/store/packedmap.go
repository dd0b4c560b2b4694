package store

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
)

// Limits of a page and of a segment. A full page has one of the allocator's
// sizes.
const (
	pageBytes    = 2 << 10
	pageRows     = 250
	segmentPages = 64
)

// PackedMap is an ordered copy-on-write map from keys of one width to bytes, for
// many small rows. Rows are stored together in pages, and pages in segments. A
// change replaces the page, but for appends to one that was made since Share.
// Only one goroutine writes to the map and shares it.
// The B-tree behind Table is not used here: after a split its arrays retain
// pages that have been replaced.
type PackedMap struct {
	width      int  // Bytes of a key.
	keysOnly   bool // Rows have no value.
	rows       int
	segments   []*segment
	generation *generation  // Segments of this generation may be written to.
	open       bool         // The list of segments may be written to.
	shared     bool         // Nothing was written since Share.
	tail       Page         // The page that the last append made since Share; nil for none.
	builder    *pageBuilder // Owned by the goroutine that writes.
}

// segment is a list of pages in the order of their keys. It is never empty.
type segment struct {
	generation *generation
	pages      []Page
}

// generation identifies a map between two calls of Share.
type generation struct{ _ byte }

// Page is a list of rows in the order of their keys. Once it is shared it never changes:
//
//	number of rows (u8), length of the common prefix of their keys (u8), prefix
//	for each row: the rest of its key
//	for each row, if rows have values: length (uvarint), value
//
// The first key therefore follows the first two bytes in one piece.
type Page []byte

// NewPackedMap returns an empty map whose keys have width bytes. With keysOnly
// its rows have no values.
func NewPackedMap(width int, bare bool) PackedMap {
	return PackedMap{
		width: width, keysOnly: bare, generation: new(generation), open: true,
		builder: &pageBuilder{width: width, keysOnly: bare},
	}
}

// Share makes the current content safe to hand out.
func (s *PackedMap) Share() {
	if !s.shared {
		s.generation, s.open, s.shared, s.tail = new(generation), false, true, nil
	}
}

// Freeze makes a copied map read-only.
func (s *PackedMap) Freeze() { s.builder = nil }

// Len returns the number of rows.
func (s *PackedMap) Len() int { return s.rows }

// first returns the first key of p.
func (s *PackedMap) first(p Page) []byte { return p[2 : 2+s.width] }

// position is the place of a page: its segment, and its index there.
type position struct{ segment, page int }

// at returns the position of the page that has, or would have, key. It reports
// false if the map is empty.
func (s *PackedMap) at(key []byte) (at position, ok bool) {
	if len(s.segments) == 0 {
		return at, false
	}
	at.segment = max(sort.Search(len(s.segments), func(i int) bool {
		return bytes.Compare(s.first(s.segments[i].pages[0]), key) > 0
	})-1, 0)
	pages := s.segments[at.segment].pages
	at.page = max(sort.Search(len(pages), func(i int) bool { return bytes.Compare(s.first(pages[i]), key) > 0 })-1, 0)
	return at, true
}

// pageOf returns the page that has, or would have, key; nil if the map is empty.
func (s *PackedMap) pageOf(key []byte) Page {
	at, ok := s.at(key)
	if !ok {
		return nil
	}
	return s.segments[at.segment].pages[at.page]
}

// write returns segment i, copied if it is shared.
func (s *PackedMap) write(i int) *segment {
	if !s.open {
		s.segments, s.open = slices.Clone(s.segments), true
	}
	d := s.segments[i]
	if d.generation != s.generation {
		d = &segment{s.generation, slices.Clone(d.pages)}
		s.segments[i] = d
	}
	return d
}

// replace replaces one page by at most two.
func (s *PackedMap) replace(at position, pages ...Page) {
	s.shared = false
	d := s.write(at.segment)
	d.pages = slices.Replace(d.pages, at.page, at.page+1, pages...)
	switch n := len(d.pages); {
	case n == 0:
		s.segments = slices.Delete(s.segments, at.segment, at.segment+1)
	case n > segmentPages:
		cut := n / 2
		if at.segment == len(s.segments)-1 && at.page >= n-2 {
			cut = n - 1 // Appends leave the segment full.
		}
		next := &segment{s.generation, slices.Clone(d.pages[cut:])}
		d.pages = slices.Clone(d.pages[:cut])
		s.segments = slices.Insert(s.segments, at.segment+1, next)
	}
}

// push appends a page.
func (s *PackedMap) push(p Page) {
	s.shared = false
	if n := len(s.segments); n > 0 && len(s.segments[n-1].pages) < segmentPages {
		d := s.write(n - 1)
		d.pages = append(d.pages, p)
		return
	}
	if !s.open {
		s.segments, s.open = slices.Clone(s.segments), true
	}
	s.segments = append(s.segments, &segment{s.generation, []Page{p}})
}

// shape returns the number of rows of p, the common prefix of their keys, and
// the rests of the keys.
func (s *PackedMap) shape(p Page) (n int, prefix, suffixes []byte) {
	n, pre := int(p[0]), int(p[1])
	return n, p[2 : 2+pre], p[2+pre : 2+pre+n*(s.width-pre)]
}

// find returns the index of key in p.
func (s *PackedMap) find(p Page, key []byte) (at int, found bool) {
	n, prefix, suffixes := s.shape(p)
	pre := len(prefix)
	if pre == s.width {
		return max(bytes.Compare(key, prefix), 0), bytes.Equal(key, prefix)
	}
	if c := bytes.Compare(key[:pre], prefix); c != 0 {
		return max(c, 0) * n, false
	}
	w, rest := s.width-pre, key[pre:]
	low, high := 0, n
	for low < high {
		mid := (low + high) / 2
		switch bytes.Compare(suffixes[mid*w:mid*w+w], rest) {
		case 0:
			return mid, true
		case -1:
			low = mid + 1
		default:
			high = mid
		}
	}
	return low, false
}

// value returns the value of row i of p.
func (s *PackedMap) value(p Page, i int) []byte {
	_, prefix, suffixes := s.shape(p)
	rest := p[2+len(prefix)+len(suffixes):]
	for {
		n, size := binary.Uvarint(rest)
		if i == 0 {
			return rest[size : size+int(n)]
		}
		rest = rest[size+int(n):]
		i--
	}
}

// Get returns the value at key. The caller must not write to it. In the goroutine that
// writes to the map it is valid until the next change.
func (s *PackedMap) Get(key []byte) ([]byte, bool) {
	p := s.pageOf(key)
	if p == nil {
		return nil, false
	}
	i, ok := s.find(p, key)
	if !ok || s.keysOnly {
		return nil, ok
	}
	return s.value(p, i), true
}

// has reports whether there is a row at key.
func (s *PackedMap) has(key []byte) bool {
	p := s.pageOf(key)
	if p == nil {
		return false
	}
	_, ok := s.find(p, key)
	return ok
}

// CountBefore returns the number of rows with keys below key.
func (s *PackedMap) CountBefore(key []byte) (n int) {
	at, ok := s.at(key)
	if !ok {
		return 0
	}
	count := func(pages []Page) {
		for _, p := range pages {
			n += int(p[0])
		}
	}
	for _, d := range s.segments[:at.segment] {
		count(d.pages)
	}
	pages := s.segments[at.segment].pages
	count(pages[:at.page])
	i, _ := s.find(pages[at.page], key)
	return n + i
}

// Set stores a copy of a row. The value must not lie in the map.
func (s *PackedMap) Set(key, value []byte) {
	d := s.builder
	d.reset()
	where, ok := s.at(key)
	if !ok {
		d.insert(0, key, value)
		s.push(d.page(0, 1))
		s.rows++
		return
	}
	p := s.segments[where.segment].pages[where.page]
	at, found := s.find(p, key)
	if found && s.keysOnly {
		return
	}
	if !found {
		s.rows++
	}
	if spliced := s.splice(p, at, found, key, value); spliced != nil {
		s.replace(where, spliced)
		return
	}
	d.Load(s, p)
	if found {
		d.values[at] = value
	} else {
		d.insert(at, key, value)
	}
	n := len(d.values)
	cut := n / 2
	if at == n-1 {
		cut = at // Appends leave the page full.
	}
	if d.fits(0, n) {
		s.replace(where, d.page(0, n))
		return
	}
	s.replace(where, d.page(0, cut), d.page(cut, n))
}

// Remove removes the row at key, if there is one.
func (s *PackedMap) Remove(key []byte) {
	where, ok := s.at(key)
	if !ok {
		return
	}
	p := s.segments[where.segment].pages[where.page]
	at, found := s.find(p, key)
	if !found {
		return
	}
	s.rows--
	if p[0] == 1 {
		s.replace(where)
		return
	}
	if cut := s.cut(p, at); cut != nil {
		s.replace(where, cut)
		return
	}
	d := s.builder
	d.reset()
	d.Load(s, p)
	d.delete(at)
	s.replace(where, d.page(0, len(d.values)))
}

// splice returns p with a row at an index, in place of the one there if found says so. It
// is the page that the builder would make, made without reading the other rows. It returns
// nil where the common prefix of the keys changes, and where the page would be too large.
// The second append to a page since Share leaves room for others, which change it in place.
func (s *PackedMap) splice(p Page, at int, found bool, key, value []byte) Page {
	n, prefix, suffixes := s.shape(p)
	pre := len(prefix)
	if n == 1 || !bytes.Equal(key[:pre], prefix) {
		return nil
	}
	keys, values, w := suffixes, p[2+pre+len(suffixes):], s.width-pre
	from, to := s.valueAt(p, at)
	rest := key[pre:]
	if found {
		rest = nil
	} else {
		n, to = n+1, from
	}
	size := len(p) + len(rest) - (to - from)
	if !s.keysOnly {
		size += uvarintSize(uint64(len(value))) + len(value)
	}
	if n > pageRows || size > pageBytes {
		return nil
	}
	appends, room := !found && at == n-1, size
	if appends && s.tail != nil && &s.tail[0] == &p[0] {
		if size <= cap(p) {
			return s.extend(p, rest, value)
		}
		room = pageBytes
	}
	out := make(Page, 0, room)
	out = append(out, byte(n), byte(pre))
	out = append(out, prefix...)
	out = append(append(append(out, keys[:at*w]...), rest...), keys[at*w:]...)
	out = append(out, values[:from]...)
	if !s.keysOnly {
		out = append(binary.AppendUvarint(out, uint64(len(value))), value...)
	}
	if appends {
		s.tail = out
	}
	return append(out, values[to:]...)
}

// extend appends a row to p, which has room for it, in place. Rest is its key without the
// common prefix.
func (s *PackedMap) extend(p Page, rest, value []byte) Page {
	_, prefix, suffixes := s.shape(p)
	keysEnd, end := 2+len(prefix)+len(suffixes), len(p)
	p = p[:end+len(rest)]
	copy(p[keysEnd+len(rest):], p[keysEnd:end])
	copy(p[keysEnd:], rest)
	p[0]++
	if s.keysOnly {
		return p
	}
	return append(binary.AppendUvarint(p, uint64(len(value))), value...)
}

// cut returns p without the row at an index, as splice does.
func (s *PackedMap) cut(p Page, at int) Page {
	n, prefix, suffixes := s.shape(p)
	pre := len(prefix)
	w := s.width - pre
	first, last := 0, n-1
	switch at {
	case first:
		first++
	case last:
		last--
	}
	if n == 2 || suffixes[first*w] == suffixes[last*w] {
		return nil // The rest has a longer prefix.
	}
	from, to := s.valueAt(p, at)
	values := p[2+pre+len(suffixes):]
	out := make(Page, 0, len(p)-w-(to-from))
	out = append(out, byte(n-1), byte(pre))
	out = append(out, prefix...)
	out = append(append(out, suffixes[:at*w]...), suffixes[(at+1)*w:]...)
	return append(append(out, values[:from]...), values[to:]...)
}

// valueAt returns where the value of row i of p, with its length, begins and ends among the
// values; that of the row behind the last one is empty and at the end.
func (s *PackedMap) valueAt(p Page, i int) (from, to int) {
	if s.keysOnly {
		return 0, 0
	}
	n, prefix, suffixes := s.shape(p)
	values := p[2+len(prefix)+len(suffixes):]
	if i == n {
		return len(values), len(values)
	}
	for row := 0; ; row++ {
		size, width := binary.Uvarint(values[from:])
		if to = from + width + int(size); row == i {
			return from, to
		}
		from = to
	}
}

// pagesFrom yields the pages from the one of key on, until yield returns false.
func (s *PackedMap) pagesFrom(key []byte, yield func(Page) bool) {
	at, _ := s.at(key)
	for i := at.segment; i < len(s.segments); i++ {
		for _, p := range s.segments[i].pages[at.page:] {
			if !yield(p) {
				return
			}
		}
		at.page = 0
	}
}

// Scan yields the rows from a key on, in order, until yield returns false. Key
// and value are valid only during the call.
func (s *PackedMap) Scan(from []byte, yield func(key, value []byte) bool) {
	key := make([]byte, s.width)
	s.pagesFrom(from, func(p Page) bool {
		n, prefix, suffixes := s.shape(p)
		w := s.width - len(prefix)
		rest := p[2+len(prefix)+len(suffixes):]
		copy(key, prefix)
		for i := range n {
			copy(key[len(prefix):], suffixes[i*w:i*w+w])
			var value []byte
			if !s.keysOnly {
				size, at := binary.Uvarint(rest)
				value, rest = rest[at:at+int(size)], rest[at+int(size):]
			}
			if bytes.Compare(key, from) >= 0 && !yield(key, value) {
				return false
			}
		}
		return true
	})
}

// Descend yields the keys from a key down to low, without the first skip of
// them. They are valid only during the call. Skipped pages are not read.
func (s *PackedMap) Descend(from, low []byte, skip int, yield func(key []byte) bool) {
	key := make([]byte, s.width)
	at, _ := s.at(from)
	for i := min(at.segment, len(s.segments)-1); i >= 0; i-- {
		pages := s.segments[i].pages
		if i == at.segment {
			pages = pages[:at.page+1]
		}
		for j, p := range slices.Backward(pages) {
			n := int(p[0])
			if i == at.segment && j == at.page {
				n = s.upTo(p, from)
			}
			switch {
			case skip < n:
				if !s.keysDown(p, n-skip, key, low, yield) {
					return
				}
			case bytes.Compare(s.first(p), low) < 0:
				return
			}
			skip = max(skip-n, 0)
		}
	}
}

// keysDown yields the keys of the first n rows of a page, from the last down to
// low, in the buffer key. It reports whether more may follow.
func (s *PackedMap) keysDown(p Page, n int, key, low []byte, yield func(key []byte) bool) bool {
	_, prefix, suffixes := s.shape(p)
	w := s.width - len(prefix)
	copy(key, prefix)
	for n--; n >= 0; n-- {
		copy(key[len(prefix):], suffixes[n*w:n*w+w])
		if bytes.Compare(key, low) < 0 || !yield(key) {
			return false
		}
	}
	return true
}

// upTo returns the number of rows of p with keys up to key.
func (s *PackedMap) upTo(p Page, key []byte) int {
	at, found := s.find(p, key)
	if found {
		at++
	}
	return at
}

// Load appends pages of a Builder. It reports false if their keys do not follow
// all others.
func (s *PackedMap) Load(pages []Page) bool {
	if len(pages) > 0 && len(s.segments) > 0 {
		last := s.segments[len(s.segments)-1]
		if bytes.Compare(s.first(pages[0]), s.lastKey(last.pages[len(last.pages)-1])) <= 0 {
			return false
		}
	}
	for _, p := range pages {
		s.push(p)
		s.rows += int(p[0])
	}
	return true
}

// lastKey returns the last key of p.
func (s *PackedMap) lastKey(p Page) []byte {
	n, prefix, suffixes := s.shape(p)
	w := s.width - len(prefix)
	return slices.Concat(prefix, suffixes[(n-1)*w:])
}

// Builder makes pages of rows that are added in the order of their keys.
type Builder struct {
	page      pageBuilder
	values    []byte // The values of the page.
	weight    int    // Bytes of the values and of their lengths.
	pages     []Page
	unordered bool // Some rows were added out of order.
}

// NewBuilder returns a Builder for a PackedMap of the same width.
func NewBuilder(width int, bare bool) Builder {
	return Builder{page: pageBuilder{width: width, keysOnly: bare}}
}

// Add adds a copy of a row.
func (b *Builder) Add(key, value []byte) {
	d := &b.page
	n := len(d.values)
	if n > 0 && bytes.Compare(d.keys[(n-1)*d.width:], key) >= 0 {
		b.unordered = true
	}
	d.keys = append(d.keys, key...)
	at := len(b.values)
	b.values = append(b.values, value...)
	d.values = append(d.values, b.values[at:])
	weight := 0
	if !d.keysOnly {
		weight = uvarintSize(uint64(len(value))) + len(value)
	}
	if b.weight += weight; n == 0 || n < pageRows && d.frame(0, n+1)+b.weight <= pageBytes {
		return
	}
	b.pages = append(b.pages, d.page(0, n))
	d.keys = append(d.keys[:0], key...)
	b.values = append(b.values[:0], value...)
	d.values = append(d.values[:0], b.values)
	b.weight = weight
}

// Pages returns the pages of all rows so far, and starts again. It reports false
// if rows were added out of order.
func (b *Builder) Pages() ([]Page, bool) {
	if n := len(b.page.values); n > 0 {
		b.pages = append(b.pages, b.page.page(0, n))
	}
	pages, mixed := b.pages, b.unordered
	b.page.reset()
	b.values, b.weight, b.pages, b.unordered = b.values[:0], 0, nil, false
	return pages, !mixed
}

// uvarintSize returns the bytes of a number as a uvarint.
func uvarintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// pageBuilder is a page that is being built.
type pageBuilder struct {
	width    int
	keysOnly bool
	keys     []byte // Whole keys, concatenated.
	values   [][]byte
}

func (d *pageBuilder) reset() { d.keys, d.values = d.keys[:0], d.values[:0] }

// load fills an empty builder with the rows of p.
func (d *pageBuilder) Load(s *PackedMap, p Page) {
	n, prefix, suffixes := s.shape(p)
	w := s.width - len(prefix)
	rest := p[2+len(prefix)+len(suffixes):]
	for i := range n {
		d.keys = append(append(d.keys, prefix...), suffixes[i*w:i*w+w]...)
		var value []byte
		if !d.keysOnly {
			size, at := binary.Uvarint(rest)
			value, rest = rest[at:at+int(size)], rest[at+int(size):]
		}
		d.values = append(d.values, value)
	}
}

func (d *pageBuilder) insert(at int, key, value []byte) {
	d.keys = slices.Insert(d.keys, at*d.width, key...)
	d.values = slices.Insert(d.values, at, value)
}

func (d *pageBuilder) delete(at int) {
	d.keys = slices.Delete(d.keys, at*d.width, (at+1)*d.width)
	d.values = slices.Delete(d.values, at, at+1)
}

// common returns the length of the common prefix of some keys: that of the first
// and the last.
func (d *pageBuilder) common(from, to int) int {
	first, last := d.keys[from*d.width:(from+1)*d.width], d.keys[(to-1)*d.width:to*d.width]
	n := 0
	for n < d.width && first[n] == last[n] {
		n++
	}
	return n
}

// size returns the bytes of a page of some rows.
func (d *pageBuilder) size(from, to int) int {
	size := d.frame(from, to)
	if !d.keysOnly {
		for _, v := range d.values[from:to] {
			size += uvarintSize(uint64(len(v))) + len(v)
		}
	}
	return size
}

// frame returns the bytes of a page of some rows without their values.
func (d *pageBuilder) frame(from, to int) int {
	pre := d.common(from, to)
	return 2 + pre + (to-from)*(d.width-pre)
}

// fits reports whether some rows fit into one page. A single one always does.
func (d *pageBuilder) fits(from, to int) bool {
	return to-from == 1 || to-from <= pageRows && d.size(from, to) <= pageBytes
}

// page returns the page of some rows.
func (d *pageBuilder) page(from, to int) Page {
	pre := d.common(from, to)
	p := make(Page, 0, d.size(from, to))
	p = append(p, byte(to-from), byte(pre))
	p = append(p, d.keys[from*d.width:from*d.width+pre]...)
	for i := from; i < to; i++ {
		p = append(p, d.keys[i*d.width+pre:(i+1)*d.width]...)
	}
	if !d.keysOnly {
		for _, v := range d.values[from:to] {
			p = append(binary.AppendUvarint(p, uint64(len(v))), v...)
		}
	}
	return p
}
