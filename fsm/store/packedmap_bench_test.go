package store

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// BenchmarkPackedMapSet adds rows of 33 bytes to a map of 100,000: behind all others, as
// ages of requests are, and anywhere, as requests are.
func BenchmarkPackedMapSet(b *testing.B) {
	for name, random := range map[string]bool{"behind": false, "anywhere": true} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			s, key, value := NewPackedMap(16, false), make([]byte, 16), make([]byte, 17)
			n := uint64(0)
			set := func() {
				n++
				if binary.BigEndian.PutUint64(key[8:], n); random {
					binary.BigEndian.PutUint64(key[8:], rng.Uint64())
				}
				s.Set(key, value)
			}
			for range 100_000 {
				set()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				set()
			}
		})
	}
}
