package wire

import "berth/compute"

// OrNull returns s, nil for the empty string.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// AtOrNull returns at, nil when it is unset.
func AtOrNull(at compute.Instant) *compute.Instant {
	if at.IsZero() {
		return nil
	}
	return &at
}
