package store

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// someRecord returns a map as records are encoded: small keys, and items of
// every kind that occurs, many of them like those of others.
func someRecord(rng *rand.Rand, depth int) map[uint64]any {
	m := make(map[uint64]any)
	for range rng.IntN(12) {
		key := uint64(rng.IntN(60))
		switch rng.IntN(8) {
		case 0:
			m[key] = rng.Int64() - rng.Int64()
		case 1:
			m[key] = int64(1_790_000_000_000) + rng.Int64N(100_000)
		case 2:
			m[key] = rng.IntN(3) - 1
		case 3:
			id := make([]byte, 16)
			binary.BigEndian.PutUint64(id, uint64(rng.IntN(3)))
			m[key] = id
		case 4:
			m[key] = "text"[:rng.IntN(5)]
		case 5:
			m[key] = rng.IntN(2) == 0
		case 6:
			m[key] = []any{rng.IntN(3), "x"}
		case 7:
			if depth > 0 {
				m[key] = someRecord(rng, depth-1)
			}
		}
	}
	return m
}

func TestWhatIsPackedComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	p := NewPacker(3, 10, 20, 21)
	key := make([]byte, 32)
	key[7] = 2 // One of the identifiers.
	type row struct{ record, packed []byte }
	var rows []row
	for range 20_000 {
		record := MustEncode(someRecord(rng, 2))
		rows = append(rows, row{record, p.Pack(nil, key, record)})
	}
	smaller := 0
	for _, r := range rows {
		if got := p.unpack(nil, key, r.packed); !bytes.Equal(got, r.record) {
			t.Fatalf("%x came back as %x", r.record, got)
		}
		if len(r.packed) < len(r.record) {
			smaller++
		}
	}
	if smaller < len(rows)/3 {
		t.Errorf("only %d of %d are smaller", smaller, len(rows))
	}
}

// FuzzPack packs anything against anything, and checks that it is unpacked unchanged.
func FuzzPack(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 20 {
		f.Add(MustEncode(someRecord(rng, 2)), MustEncode(someRecord(rng, 2)))
	}
	f.Add([]byte{0xa1, 0x01, 0x18, 0x01}, []byte{0xa1, 0x01, 0x02}) // A number in more bytes than it needs.
	f.Add([]byte{0xa1, 0x01, 0x02}, []byte{0xa1, 0x01})
	f.Fuzz(func(t *testing.T, base, record []byte) {
		p := NewPacker(1, 2)
		key := make([]byte, 16)
		for _, data := range [][]byte{base, record, record} {
			if got := p.unpack(nil, key, p.Pack(nil, key, data)); !bytes.Equal(got, data) {
				t.Fatalf("%x came back as %x", data, got)
			}
		}
	})
}

func TestDictionaryIsBounded(t *testing.T) {
	w := NewDictionary()
	long := make([]byte, maxEntry+1)
	if _, ok := w.Number(long); ok {
		t.Error("an entry that is too long was taken")
	}
	entry := long[:maxEntry]
	taken := 0
	for i := range uint64(2 * maxDictionaryBytes / maxEntry) {
		binary.BigEndian.PutUint64(entry, i)
		if n, ok := w.Number(entry); ok {
			if taken++; binary.BigEndian.Uint64(w.At(n)) != i {
				t.Fatalf("entry %d is another one", i)
			}
		}
	}
	if taken != maxDictionaryBytes/maxEntry {
		t.Errorf("%d entries were taken", taken)
	}
	binary.BigEndian.PutUint64(entry, 5)
	if n, ok := w.Number(entry); !ok || n != 5 {
		t.Error("a known entry is not found at the limit")
	}
}
