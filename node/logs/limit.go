package logs

import (
	"fmt"
	"time"
	"unicode/utf8"

	"berth/compute"
)

// bucket is a token bucket that holds one second's worth of bytes. Its clock is
// the instants it is given. It is not refilled by time that stands still or
// goes back.
type bucket struct {
	rate   int64
	tokens int64
	at     compute.Instant
}

// refill adds what the time since the last refill is worth.
func (b *bucket) refill(now compute.Instant) {
	elapsed := int64(now - b.at)
	b.at = now
	if elapsed <= 0 {
		return
	}
	b.tokens = min(b.rate, b.tokens+b.rate*min(elapsed, 1000)/1000)
}

// full reports whether a whole second's worth is free.
func (b *bucket) full() bool { return b.tokens >= b.rate }

// take removes n tokens, or reports that there are not enough. A full bucket
// always grants; otherwise a rate below one line would pass nothing.
func (b *bucket) take(n int64) bool {
	if b.tokens < n && !b.full() {
		return false
	}
	b.tokens -= n
	return true
}

// debt returns how long it takes until the bucket is not overdrawn.
func (b *bucket) debt() time.Duration {
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens) * time.Second / time.Duration(b.rate)
}

// wholeRunes returns how many bytes of b precede an incomplete rune at its end:
// all of them when b is not UTF-8.
func wholeRunes(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		if start := len(b) - i; utf8.RuneStart(b[start]) {
			if utf8.FullRune(b[start:]) {
				return len(b)
			}
			return start
		}
	}
	return len(b)
}

// batch returns how many bytes of records one write may hold.
func (l Limits) batch() int {
	return int(min(batchBytes, l.chunkBytes()-chunkReserve))
}

// sizeText formats n bytes for people.
func sizeText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// firstOf returns the first error that is not nil.
func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
