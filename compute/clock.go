package compute

import "time"

// ClockTolerance is by how much the clocks of two nodes may differ before that is
// a fault.
const ClockTolerance = 10 * time.Second

// ClockOff reports whether a clock that is so much ahead of another one is off.
func ClockOff(ahead time.Duration) bool { return ahead.Abs() > ClockTolerance }

// ClockDrift is how far a clock may differ before a warning: less than
// anything here rests on, and more than a clock that is set by others is off.
const ClockDrift = 500 * time.Millisecond

// AheadText says by how much a clock is ahead of another one, or behind.
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
