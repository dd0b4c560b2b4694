package berth

import (
	"fmt"
	"strconv"
	"strings"
)

// Amount is an amount of credits in millionths: 1,000,000 are one credit. In JSON it
// is a number of credits, which loses nothing.
type Amount int64

// Credit is one credit.
const Credit Amount = 1_000_000

// String returns the amount in credits, without zeros at its end.
func (a Amount) String() string {
	sign, n := "", uint64(a)
	if a < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%06d", sign, n/uint64(Credit), n%uint64(Credit))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalJSON returns the amount as a number of credits.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a number of credits with at most six decimals.
func (a *Amount) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > 6 {
		return fmt.Errorf("%s credits have more than six decimals", text)
	}
	n, err := strconv.ParseInt(whole+decimals+strings.Repeat("0", 6-len(decimals)), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not an amount of credits", text)
	}
	*a = Amount(n)
	return nil
}
