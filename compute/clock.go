package compute

import "time"

// ClockTolerance is the largest difference between the clocks of two nodes that
// is not a fault.
const ClockTolerance = 10 * time.Second

// ClockOff reports whether a clock that is ahead of another one by this much is
// off.
func ClockOff(ahead time.Duration) bool { return ahead.Abs() > ClockTolerance }

// ClockDrift is the difference above which a clock causes a warning. It is less
// than anything here relies on, and more than a synchronized clock drifts.
const ClockDrift = 500 * time.Millisecond

// AheadText describes how far a clock is ahead of another one, or behind.
func AheadText(ahead time.Duration) string {
	unit := time.Second
	if !ClockOff(ahead) {
		unit = time.Second / 10
	}
	if ahead < 0 {
		return (-ahead).Round(unit).String() + " behind"
	}
	return ahead.Round(unit).String() + " ahead"
}
