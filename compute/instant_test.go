package compute_test

import (
	"testing"
	"time"

	"berth/compute"
)

func TestInstant(t *testing.T) {
	zone := time.FixedZone("east", 3*3600)
	tests := []struct {
		name string
		time time.Time
		want string
	}{
		{"zero", time.Time{}, ""},
		{"to the millisecond", time.Date(2026, 11, 20, 9, 5, 7, 123_999_999, time.UTC), "2026-11-20T09:05:07.123Z"},
		{"always UTC", time.Date(2026, 11, 20, 1, 0, 0, 0, zone), "2026-11-19T22:00:00.000Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := compute.InstantOf(tt.time)
			if i.String() != tt.want || i.IsZero() != tt.time.IsZero() {
				t.Errorf("got %q (zero: %v), want %q", i, i.IsZero(), tt.want)
			}
			if !i.Time().Equal(tt.time.Truncate(time.Millisecond)) {
				t.Errorf("back as %v", i.Time())
			}
			text, err := i.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			got := compute.Instant(7)
			if err := got.UnmarshalText(text); err != nil || got != i {
				t.Errorf("%q came back as %v, %v", text, got, err)
			}
		})
	}
}

func TestInstantArithmetic(t *testing.T) {
	start := compute.Instant(1_000_000)
	end := start.Add(1500*time.Millisecond + 999*time.Microsecond)
	if got := end.Sub(start); got != 1500*time.Millisecond {
		t.Errorf("%v later, want 1.5s: instants have milliseconds", got)
	}
	if got := start.Sub(end); got != -1500*time.Millisecond {
		t.Errorf("%v, want -1.5s", got)
	}
	var i compute.Instant
	if i.UnmarshalText([]byte("yesterday")) == nil {
		t.Error("yesterday is accepted")
	}
}
