package compute_test

import (
	"math/rand/v2"
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

// TestInstantText compares the text of instants with that of package time.
func TestInstantText(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	last := time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for n := range 20_000 {
		at := rng.Int64N(2*last) - last/4 // From before the epoch to years of five digits.
		if n%3 > 0 {
			at = rng.Int64N(int64(200 * 365 * 24 * time.Hour / time.Millisecond))
		}
		i := compute.Instant(at)
		if want := i.Time().Format("2006-01-02T15:04:05.000Z"); at != 0 && i.String() != want {
			t.Fatalf("%d is %s, want %s", at, i, want)
		}
	}
}

func BenchmarkInstant(b *testing.B) {
	i := compute.InstantOf(time.Date(2026, 11, 20, 9, 5, 7, 123_000_000, time.UTC))
	for b.Loop() {
		if _, err := i.MarshalText(); err != nil {
			b.Fatal(err)
		}
	}
}
