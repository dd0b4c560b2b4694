package compute

import (
	"slices"
	"time"
)

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
	return string(i.append(nil))
}

// append appends what String returns of an instant that is set. Records and lists have many,
// and package time takes three times as long.
func (i Instant) append(b []byte) []byte {
	t := i.Time()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, "2006-01-02T15:04:05.000Z")
	}
	b = append(slices.Grow(b, len("2006-01-02T15:04:05.000Z")), byte('0'+year/1000), byte('0'+year/100%10))
	for _, part := range []struct {
		n      int
		behind byte
	}{{year % 100, '-'}, {int(month), '-'}, {day, 'T'}, {hour, ':'}, {minute, ':'}, {second, '.'}} {
		b = append(b, byte('0'+part.n/10), byte('0'+part.n%10), part.behind)
	}
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// MarshalText returns what String returns.
func (i Instant) MarshalText() ([]byte, error) {
	if i == 0 {
		return []byte{}, nil
	}
	return i.append(nil), nil
}

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
