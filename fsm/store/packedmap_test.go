package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// rowsOf returns the rows of a map.
func rowsOf(s *PackedMap) map[string]string {
	out := make(map[string]string)
	last := ""
	s.Scan(make([]byte, s.width), func(key, value []byte) bool {
		if string(key) <= last && last != "" {
			panic("keys are out of order")
		}
		last = string(key)
		out[last] = string(value)
		return true
	})
	return out
}

func checkPackedMap(t *testing.T, s *PackedMap, want map[string]string) {
	t.Helper()
	got := rowsOf(s)
	if len(got) != len(want) || s.Len() != len(want) {
		t.Fatalf("%d rows, counted %d, want %d", len(got), s.Len(), len(want))
	}
	for k, v := range want {
		if got[k] != v || !s.has([]byte(k)) {
			t.Fatalf("at %x is %x, want %x", k, got[k], v)
		}
		if value, ok := s.Get([]byte(k)); !ok || string(value) != v {
			t.Fatalf("get %x: %x", k, value)
		}
	}
}

// TestPackedMapIsAMap does random things to a map and to a map, and looks at
// copies that were shared on the way.
func TestPackedMapIsAMap(t *testing.T) {
	for _, bare := range []bool{false, true} {
		t.Run(fmt.Sprint("bare ", bare), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			s, want := NewPackedMap(16, bare), make(map[string]string)
			key := func() []byte {
				k := make([]byte, 16)
				binary.BigEndian.PutUint64(k, rng.Uint64N(4))
				binary.BigEndian.PutUint64(k[8:], rng.Uint64N(3000))
				return k
			}
			var old PackedMap
			var then map[string]string
			for step := range 20_000 {
				switch k := key(); {
				case rng.IntN(3) > 0:
					value := ""
					if !bare {
						value = string(bytes.Repeat([]byte{byte(step)}, rng.IntN(60)*(1+rng.IntN(200)/199*200)))
					}
					s.Set(k, []byte(value))
					want[string(k)] = value
				default:
					s.Remove(k)
					delete(want, string(k))
				}
				if step%100 == 0 {
					checkPages(t, &s)
				}
				if step == 9000 {
					s.Share()
					old, then = s, make(map[string]string)
					old.Freeze()
					for k, v := range want { // Any order.
						then[k] = v
					}
				}
			}
			checkPackedMap(t, &s, want)
			checkPackedMap(t, &old, then)
			checkDown(t, &s, want)
			checkSkip(t, &s, want)
			for k := range want { // Any order.
				if s.Remove([]byte(k)); s.Len()%100 == 0 {
					checkPages(t, &s)
				}
			}
			if s.Len() != 0 || len(rowsOf(&s)) != 0 {
				t.Error("an emptied map has rows")
			}
		})
	}
}

// TestSharedRowsDoNotChange appends rows, changes and removes some of them, and shares the map at
// random times: appends change pages in place, but none that was shared.
func TestSharedRowsDoNotChange(t *testing.T) {
	for _, bare := range []bool{false, true} {
		t.Run(fmt.Sprint("bare ", bare), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 5))
			s, want := NewPackedMap(8, bare), make(map[string]string)
			type copied struct {
				rows PackedMap
				want map[string]string
			}
			var copies []copied
			key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)*2) }
			put := func(k []byte) {
				value := ""
				if !bare {
					value = string(bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(40)))
				}
				s.Set(k, []byte(value))
				want[string(k)] = value
			}
			for next := range 6000 {
				put(key(next))
				switch recent := max(0, next-rng.IntN(20)); rng.IntN(60) {
				case 0:
					put(key(recent))
				case 1:
					put(append(key(recent)[:7], byte(recent*2+1)))
				case 2:
					s.Remove(key(recent))
					delete(want, string(key(recent)))
				case 3, 4, 5:
					s.Share()
					if shared := s; rng.IntN(4) == 0 {
						shared.Freeze()
						copies = append(copies, copied{shared, maps.Clone(want)})
					}
				}
				if next%50 == 0 {
					checkPages(t, &s)
				}
			}
			checkPackedMap(t, &s, want)
			for _, c := range copies {
				checkPackedMap(t, &c.rows, c.want)
			}
		})
	}
}

// checkPages checks that the pages are those that are built of all their rows, although
// most changes copy most of a page.
func checkPages(t *testing.T, s *PackedMap) {
	t.Helper()
	d := &pageBuilder{width: s.width, keysOnly: s.keysOnly}
	s.pagesFrom(make([]byte, s.width), func(p Page) bool {
		d.reset()
		d.Load(s, p)
		if n := len(d.values); n != int(p[0]) || !bytes.Equal(d.page(0, n), p) {
			t.Fatalf("a page of %d rows has %d bytes, and is not the one that is built", n, len(p))
		}
		return true
	})
}

// checkDown compares going down with going up, from every tenth key.
func checkDown(t *testing.T, s *PackedMap, want map[string]string) {
	t.Helper()
	var keys []string
	for k := range want { // Any order.
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i := 0; i < len(keys); i += 10 {
		n := i
		s.Descend([]byte(keys[i]), nil, 0, func(key []byte) bool {
			if string(key) != keys[n] {
				t.Fatalf("down from %x: %x, want %x", keys[i], key, keys[n])
			}
			n--
			return n > i-5 && n >= 0
		})
		n = i
		s.Scan([]byte(keys[i]), func(key, _ []byte) bool {
			if string(key) != keys[n] {
				t.Fatalf("up from %x: %x, want %x", keys[i], key, keys[n])
			}
			n++
			return n < i+5
		})
	}
}

// checkSkip compares the keys between two keys when some are skipped.
func checkSkip(t *testing.T, s *PackedMap, want map[string]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	for i := 0; i < len(keys); i += 97 {
		for _, skip := range []int{0, 1, 7, 249, 250, 251, 1900, i - i/3, i - i/3 + 1, len(keys)} {
			n := i - skip
			s.Descend([]byte(keys[i]), []byte(keys[i/3]), skip, func(key []byte) bool {
				if n < i/3 || string(key) != keys[n] {
					t.Fatalf("down from %d to %d without %d: %x is not at %d", i, i/3, skip, key, n)
				}
				n--
				return true
			})
			if i-skip >= i/3 && n != i/3-1 {
				t.Fatalf("down from %d to %d without %d: it ends at %d", i, i/3, skip, n)
			}
		}
	}
	s.Descend(bytes.Repeat([]byte{255}, s.width), nil, len(keys), func(key []byte) bool {
		t.Fatalf("all are skipped, and yet there is %x", key)
		return false
	})
}

func TestPackedMapIsLoadedInOrder(t *testing.T) {
	s, want := NewPackedMap(8, false), make(map[string]string)
	b := NewBuilder(8, false)
	for i := range uint64(5000) {
		k := binary.BigEndian.AppendUint64(nil, i*3)
		value := fmt.Sprint("value ", i)
		b.Add(k, []byte(value))
		want[string(k)] = value
	}
	pages, ordered := b.Pages()
	if !ordered {
		t.Fatal("the binder says that keys are out of order")
	}
	if !s.Load(pages) || s.Load(pages) {
		t.Fatal("pages have to be behind all others, and that is all")
	}
	checkPackedMap(t, &s, want)
	for i := range uint64(300) {
		k := binary.BigEndian.AppendUint64(nil, i*7)
		s.Set(k, []byte("later"))
		want[string(k)] = "later"
	}
	checkPackedMap(t, &s, want)
}
