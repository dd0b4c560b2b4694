package md5pairs_test

import (
	"crypto/md5"
	"hash"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"berth/node/objects/md5pairs"
)

// content returns bytes that look random.
func content(seed byte, size int) []byte {
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(out)
	return out
}

// soon returns a channel that is closed a moment later.
func soon() <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { close(c) })
	return c
}

// TestStreamsHaveTheirMD5s hashes streams at once, in pieces of all sizes.
func TestStreamsHaveTheirMD5s(t *testing.T) {
	t.Parallel()
	for streams := range 11 {
		var hasher md5pairs.Hasher
		var group sync.WaitGroup
		for i := range streams {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(streams), uint64(i)))
				got, want := md5.New(), md5.New()
				hasher.Enter()
				defer hasher.Leave()
				for range 20 {
					size := random.IntN(1 << 20)
					if random.IntN(3) > 0 {
						size = size / md5.BlockSize * md5.BlockSize // Otherwise few streams are between blocks.
					}
					data := content(byte(random.Uint32()), size)
					hasher.Write(got, data, soon())
					want.Write(data)
					if got, want := got.Sum(nil), want.Sum(nil); string(got) != string(want) {
						t.Errorf("stream %d of %d has MD5 %x, want %x", i, streams, got, want)
						return
					}
				}
			})
		}
		group.Wait()
	}
}

// TestWritesNeedNotBeNeeded writes data that nobody asks for: of one stream, and of two at
// once when both are there.
func TestWritesNeedNotBeNeeded(t *testing.T) {
	t.Parallel()
	for streams := 1; streams <= 2; streams++ {
		var hasher md5pairs.Hasher
		var group sync.WaitGroup
		for range streams {
			hasher.Enter()
		}
		for i := range streams {
			group.Go(func() {
				data, sum := content(byte(i), 1<<20), md5.New()
				hasher.Write(sum, data, nil)
				if want := md5.Sum(data); string(sum.Sum(nil)) != string(want[:]) {
					t.Errorf("MD5 %x, want %x", sum.Sum(nil), want)
				}
			})
		}
		group.Wait()
	}
}

// plain hides how a hash exports its state.
type plain struct{ hash.Hash }

func TestHashOfAnotherPackage(t *testing.T) {
	t.Parallel()
	var hasher md5pairs.Hasher
	var group sync.WaitGroup
	for i := range byte(4) {
		group.Go(func() {
			data := content(i, 3<<20+17)
			sum := md5.New()
			hasher.Enter()
			defer hasher.Leave()
			hasher.Write(plain{sum}, data, soon())
			if want := md5.Sum(data); string(sum.Sum(nil)) != string(want[:]) {
				t.Errorf("MD5 %x, want %x", sum.Sum(nil), want)
			}
		})
	}
	group.Wait()
}

func BenchmarkStreams(b *testing.B) {
	for _, streams := range []int{1, 2, 4, 8} {
		b.Run(string(rune('0'+streams)), func(b *testing.B) {
			data := content(1, 4<<20)
			b.SetBytes(int64(streams * len(data)))
			var hasher md5pairs.Hasher
			for range streams {
				hasher.Enter()
			}
			for b.Loop() {
				var group sync.WaitGroup
				for range streams {
					group.Go(func() { hasher.Write(md5.New(), data, nil) })
				}
				group.Wait()
			}
		})
	}
}
