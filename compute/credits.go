package compute

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Credits is an amount of money in micro-credits: 1,000,000 are one credit.
type Credits int64

// Credit is one credit.
const Credit Credits = 1_000_000

// MaxAmount is the most credits that can be granted, bought, held or set as a ceiling, so that no
// sum overflows.
const MaxAmount Credits = 1 << 60

// Errors for text that is not an amount of credits.
var (
	ErrCredits     = errors.New("not an amount of credits with at most six decimals")
	ErrManyCredits = errors.New("an amount of credits is at most " + MaxAmount.String())
	errFewCredits  = errors.New("an amount of credits is above 0")
)

// ParseAmount parses an amount of credits above 0 that is at most MaxAmount.
func ParseAmount(s string) (Credits, error) {
	c, err := ParseCredits(s)
	switch {
	case err != nil:
		return 0, err
	case c <= 0:
		return 0, errFewCredits
	case c > MaxAmount:
		return 0, ErrManyCredits
	}
	return c, nil
}

// ParseCredits parses a decimal number of credits with at most six decimals. It
// never rounds. The error for a number that is too large is ErrManyCredits, for any other text
// ErrCredits.
func ParseCredits(s string) (Credits, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	negative := strings.HasPrefix(whole, "-")
	whole = strings.TrimPrefix(whole, "-")
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > 6 || whole == "" && fraction == "" {
		return 0, ErrCredits
	}
	digits := whole + fraction + strings.Repeat("0", 6-len(fraction))
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange) && !negative:
		return 0, ErrManyCredits
	case err != nil:
		return 0, ErrCredits
	}
	if negative {
		return -Credits(n), nil
	}
	return Credits(n), nil
}

// String returns the exact decimal number of credits without trailing zeros.
func (c Credits) String() string {
	sign, n := "", uint64(c)
	if c < 0 {
		sign, n = "-", -n
	}
	text := sign + strconv.FormatUint(n/1_000_000, 10)
	if rest := n % 1_000_000; rest != 0 {
		fraction := strconv.FormatUint(1_000_000+rest, 10)[1:]
		text += "." + strings.TrimRight(fraction, "0")
	}
	return text
}

// MarshalJSON returns the amount as an exact JSON number of credits.
func (c Credits) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON accepts a JSON number with at most six decimals.
func (c *Credits) UnmarshalJSON(data []byte) error {
	v, err := ParseCredits(string(data))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// Price is the cost of a second, in micro-credits.
type Price int64

// PerHour returns the price of an hour, exactly.
func (p Price) PerHour() Credits { return Credits(p) * 3600 }

// Charge returns the cost of d: ceil(price × milliseconds / 1,000), rounded up
// once, to a micro-credit. A negative price or duration costs nothing. A charge
// that overflows is the largest possible amount.
func (p Price) Charge(d time.Duration) Credits {
	if p <= 0 || d <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(p), uint64(d.Milliseconds()))
	if hi >= 1000 {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, 1000)
	if q >= math.MaxInt64 { // Before rounding, which could overflow.
		return math.MaxInt64
	}
	if r > 0 {
		q++
	}
	return Credits(q)
}

// Buys returns how long credits last at the price, to the millisecond and at most
// limit.
func (p Price) Buys(credits Credits, limit time.Duration) time.Duration {
	if p <= 0 {
		return limit
	}
	hi, lo := bits.Mul64(uint64(max(credits, 0)), 1000)
	if hi >= uint64(p) {
		return limit
	}
	ms, _ := bits.Div64(hi, lo, uint64(p))
	if ms > uint64(limit.Milliseconds()) {
		return limit
	}
	return time.Duration(ms) * time.Millisecond
}
