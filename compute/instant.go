package compute

import "time"

// Instant is a point in time in the state: milliseconds since the Unix epoch,
// UTC. Zero means "not yet" or "never".
type Instant int64

// InstantOf returns t as an Instant; the zero time is the zero Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMilli())
}

// Time returns i in UTC; the zero Instant is the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// Add returns the instant d after i, to the millisecond.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Millisecond }

// IsZero reports whether i is unset.
func (i Instant) IsZero() bool { return i == 0 }

// String returns i as RFC 3339 with milliseconds and Z, or "" when unset.
func (i Instant) String() string {
	if i == 0 {
		return ""
	}
	return i.Time().Format("2006-01-02T15:04:05.000Z")
}

// MarshalText returns what String returns.
func (i Instant) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText accepts RFC 3339, and "" for the zero Instant.
func (i *Instant) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*i = 0
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return err
	}
	*i = InstantOf(t)
	return nil
}
