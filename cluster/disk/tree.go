package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// The layout of a bbolt file, version 2.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	pageHead     = 16
	pageElement  = 16
	metaSize     = 64
	metaSummed   = 56
	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagBucket   = 0x01
	maxPageSize  = 64 << 10
	maxTreeDepth = 32
	bucketHead   = 16 // Root page and sequence number.
)

// boltTree checks the pages of a bbolt file before bbolt opens it. Bbolt also
// walks the pages, to find the free ones. But it reports a damaged page by a
// panic in another goroutine, which ends the process.
type boltTree struct {
	file  *os.File
	size  int    // Bytes of a page.
	pages uint64 // The first unused page number.
	seen  map[uint64]bool
}

// checkBolt returns an error if the tree in the file is damaged.
func checkBolt(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("check raft log: %w", err)
	}
	defer f.Close()
	t := &boltTree{file: f, seen: make(map[uint64]bool)}
	root, err := t.meta()
	if err == nil {
		err = t.walk(root, nil, nil, 0)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// meta reads the newer of the two intact meta pages and returns the root page.
func (t *boltTree) meta() (root uint64, err error) {
	newest := uint64(0)
	found := false
	for _, offset := range []int64{0, int64(os.Getpagesize())} {
		var b [metaSize]byte
		if _, err := t.file.ReadAt(b[:], offset+pageHead); err != nil {
			return 0, fmt.Errorf("read meta page: %w", err)
		}
		sum := fnv.New64a()
		sum.Write(b[:metaSummed])
		size := binary.NativeEndian.Uint32(b[8:])
		txid := binary.NativeEndian.Uint64(b[48:])
		if binary.NativeEndian.Uint32(b[0:]) != boltMagic || binary.NativeEndian.Uint32(b[4:]) != boltVersion ||
			binary.NativeEndian.Uint64(b[metaSummed:]) != sum.Sum64() || size > maxPageSize || found && txid < newest {
			continue
		}
		found, newest = true, txid
		t.size, root = int(size), binary.NativeEndian.Uint64(b[16:])
		t.pages = binary.NativeEndian.Uint64(b[40:])
	}
	if !found {
		return 0, errors.New("no meta page is whole")
	}
	return root, nil
}

// walk checks a page and all below it. Keys must increase within [low, high).
// Nil means no bound.
func (t *boltTree) walk(id uint64, low, high []byte, depth int) error {
	data, flags, err := t.page(id)
	if err != nil {
		return err
	}
	if depth > maxTreeDepth {
		return fmt.Errorf("page %d: too deep", id)
	}
	keys, err := elementKeys(data, flags, low, high)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	for i := range len(keys) - 1 {
		element := data[pageHead+i*pageElement:]
		switch {
		case flags == flagBranch:
			err = t.walk(binary.NativeEndian.Uint64(element[8:]), keys[i], keys[i+1], depth+1)
		case binary.NativeEndian.Uint32(element)&flagBucket != 0:
			err = t.bucket(data, i, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks the tree of a bucket. Its element, which is intact, is the i-th
// of a page.
func (t *boltTree) bucket(data []byte, i, depth int) error {
	start := pageHead + i*pageElement
	pos := start + int(binary.NativeEndian.Uint32(data[start+4:])) + int(binary.NativeEndian.Uint32(data[start+8:]))
	value := data[pos : pos+int(binary.NativeEndian.Uint32(data[start+12:]))]
	if len(value) < bucketHead {
		return errors.New("a bucket is cut")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return t.walk(root, nil, nil, depth+1)
	}
	return checkInline(value[bucketHead:])
}

// checkInline checks the page of a bucket that is small enough to be inside its
// element. Bbolt copies it without checks: an element beyond the page would be
// read from the memory after it.
func checkInline(page []byte) error {
	if len(page) < pageHead {
		return errors.New("the page of a small bucket is cut")
	}
	id, flags := binary.NativeEndian.Uint64(page), binary.NativeEndian.Uint16(page[8:])
	if overflow := binary.NativeEndian.Uint32(page[12:]); id != 0 || flags != flagLeaf || overflow != 0 {
		return errors.New("the page of a small bucket has a damaged head")
	}
	keys, err := elementKeys(page, flags, nil, nil)
	if err != nil {
		return fmt.Errorf("the page of a small bucket: %w", err)
	}
	for i := range len(keys) - 1 {
		if binary.NativeEndian.Uint32(page[pageHead+i*pageElement:])&flagBucket != 0 {
			return fmt.Errorf("the page of a small bucket: element %d is a bucket", i)
		}
	}
	return nil
}

// page reads a page with its overflow pages. Each page may be reached once.
func (t *boltTree) page(id uint64) (data []byte, flags uint16, err error) {
	if id < 2 || id >= t.pages {
		return nil, 0, fmt.Errorf("page %d: out of bounds", id)
	}
	var head [pageHead]byte
	if _, err := t.file.ReadAt(head[:], int64(id)*int64(t.size)); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	flags = binary.NativeEndian.Uint16(head[8:])
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head[:]) != id || flags != flagBranch && flags != flagLeaf || id+overflow >= t.pages {
		return nil, 0, fmt.Errorf("page %d: damaged head", id)
	}
	for n := id; n <= id+overflow; n++ {
		if t.seen[n] {
			return nil, 0, fmt.Errorf("page %d: reached twice", n)
		}
		t.seen[n] = true
	}
	data = make([]byte, int(overflow+1)*t.size)
	if _, err := t.file.ReadAt(data, int64(id)*int64(t.size)); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	return data, flags, nil
}

// elementKeys returns the keys of a page and, after them, high. Keys must
// increase within [low, high). Nil means no bound.
func elementKeys(data []byte, flags uint16, low, high []byte) (keys [][]byte, err error) {
	count := int(binary.NativeEndian.Uint16(data[10:]))
	if pageHead+count*pageElement > len(data) || count == 0 && flags == flagBranch {
		return nil, fmt.Errorf("%d elements do not fit", count)
	}
	keys = make([][]byte, count+1)
	keys[count] = high
	for i := range count {
		if keys[i], err = elementKey(data, flags, i); err != nil {
			return nil, err
		}
		first := i == 0 && low != nil && bytes.Compare(keys[i], low) < 0
		if first || i > 0 && bytes.Compare(keys[i], keys[i-1]) <= 0 || high != nil && bytes.Compare(keys[i], high) >= 0 {
			return nil, fmt.Errorf("key %d is out of order", i)
		}
	}
	return keys, nil
}

// elementKey returns the key of the i-th element of a page. Its value must be
// inside the page too.
func elementKey(data []byte, flags uint16, i int) ([]byte, error) {
	start := pageHead + i*pageElement
	element := data[start:]
	pos, ksize, vsize := binary.NativeEndian.Uint32(element[4:]), binary.NativeEndian.Uint32(element[8:]), uint32(0)
	if flags == flagBranch {
		pos, ksize = binary.NativeEndian.Uint32(element[0:]), binary.NativeEndian.Uint32(element[4:])
	} else {
		vsize = binary.NativeEndian.Uint32(element[12:])
	}
	from := uint64(start) + uint64(pos)
	if from+uint64(ksize)+uint64(vsize) > uint64(len(data)) || ksize == 0 {
		return nil, fmt.Errorf("element %d is outside", i)
	}
	return data[from : from+uint64(ksize)], nil
}
