package account

import "testing"

// TestHours shows two decimals, and the first digits of what would be zero in them.
func TestHours(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0.00", 36: "0.01", 35.9: "0.0100", 10: "0.0028", 1: "0.00028", 0.001: "0.00000028",
		0.000001: "0.00000000028", 3600: "1.00", 86400.5: "24.00",
	} {
		if got := hours(seconds); got != want {
			t.Errorf("%v s are %s hours, want %s", seconds, got, want)
		}
	}
}
