package autoscale

import (
	"math/bits"
	"time"
)

// Classes of delays: one for each ms up to 16, and 8 between a power of 2 and the next.
// So the bounds of a class differ by an eighth at most.
const (
	delayParts   = 8
	delayPowers  = 23 // The last class ends at 2^23 ms.
	delayClasses = delayParts * (delayPowers - 2)
)

// DelayClass returns the class in which a delay is counted.
func DelayClass(d time.Duration) int {
	ms := uint64(max(d-1, 0) / time.Millisecond) // A class ends with its upper bound.
	shift := bits.Len64(ms / (2 * delayParts))
	return min(shift*delayParts+int(ms>>shift), delayClasses-1)
}

// delayBounds returns the delays between which a class is.
func delayBounds(class int) (low, high time.Duration) {
	shift := max(class/delayParts-1, 0)
	first := int64(class - shift*delayParts)
	return time.Duration(first<<shift) * time.Millisecond, time.Duration((first+1)<<shift) * time.Millisecond
}

// delay95 estimates the 95th percentile of the answers since the counts before, 0 for
// none. It takes the answers of a class to be spread evenly over it.
func delay95(now, before []int64) time.Duration {
	total := int64(0)
	since := make([]int64, len(now))
	for i, n := range now {
		since[i] = n
		if i < len(before) {
			since[i] -= before[i]
		}
		total += since[i]
	}
	rank := float64(total) * 0.95 // So many answers were as fast.
	for class, n := range since {
		if n > 0 && rank <= float64(n) {
			low, high := delayBounds(class)
			return low + time.Duration(float64(high-low)*rank/float64(n))
		}
		rank -= float64(n)
	}
	return 0
}
