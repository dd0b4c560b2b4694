package compute

import "time"

// ClockTolerance is by how much the clocks of two nodes may differ before that is
// a fault.
const ClockTolerance = 10 * time.Second

// ClockOff reports whether a clock that is so much ahead of another one is off.
func ClockOff(ahead time.Duration) bool { return ahead.Abs() > ClockTolerance }

// AheadText says by how much a clock is ahead of another one, or behind.
func AheadText(ahead time.Duration) string {
	if ahead < 0 {
		return (-ahead).Round(time.Second).String() + " behind"
	}
	return ahead.Round(time.Second).String() + " ahead"
}
