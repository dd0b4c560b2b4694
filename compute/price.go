package compute

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// MaxPrice bounds a price, so that no charge overflows: 3.6 million credits an
// hour.
const MaxPrice Price = 1_000_000_000

// CPUPrice is the resource of the price list for CPU-only work.
const CPUPrice = "cpu"

// BuiltInPrices returns the price list of a new cluster: micro-credits per
// second by GPU type. As in real clouds, an older card costs less for the same
// work: among the simulated types, a t4 does it for 0.63 times the cost on an h100.
func BuiltInPrices() map[string]Price {
	return map[string]Price{
		CPUPrice: 15, "t4": 60, "l4": 110, "a10": 150, "l40s": 280,
		"a100": 420, "h100": 800, "h200": 1000, "b200": 1600,
	}
}

// Terms of DefaultPrice. The floor is the built-in price of a vCPU, and memory
// beyond the limit is not priced.
const (
	leastDefaultPrice Price = 15
	maxPricedMiB            = 4 << 20
	perGiB                  = 4
	perSquare               = 50
)

// DefaultPrice returns the price of a GPU type that the price list does not
// name, from its memory: 4 micro-credits per second for each GiB, and one more
// for each 50 GiB², rounded up. It rises with the memory and is never below 15.
// The built-in prices are 0.9 to 1.8 times as high.
func DefaultPrice(vramMiB int64) Price {
	const mebi = 1 << 10
	m := min(max(vramMiB, 0), maxPricedMiB)
	whole := int64(perSquare * mebi * mebi)
	price := (perGiB*perSquare*mebi*m + m*m + whole - 1) / whole
	return max(Price(price), leastDefaultPrice)
}

// PriceSource is where a price comes from.
type PriceSource uint8

// The sources of prices.
const (
	PriceBuiltIn  PriceSource = iota // The price list of a new cluster.
	PriceOperator                    // An operator has set it.
	PriceDefault                     // DefaultPrice: the price list does not name the type.
)

var priceSourceNames = names{"built-in", "operator", "default"}

// String returns the source as clients read it.
func (s PriceSource) String() string { return priceSourceNames.text(uint8(s)) }

// MarshalText returns what String returns.
func (s PriceSource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what String returns.
func (s *PriceSource) UnmarshalText(text []byte) error {
	v, err := priceSourceNames.value("source of a price", text)
	*s = PriceSource(v)
	return err
}

// ErrPrice is returned for a price that cannot be charged.
var ErrPrice = errors.New("a price is above 0 and at most 3600000 credits per hour")

// secondsPerHour converts between prices per second and per hour.
const secondsPerHour = 3600

// ParsePrice parses a decimal number of credits per hour. It rounds to the
// nearest micro-credit per second, and a price above zero to at least one.
func ParsePrice(perHour string) (Price, error) {
	// Decimals beyond the sixth are less than a micro-credit an hour.
	if whole, fraction, found := strings.Cut(perHour, "."); found && len(fraction) > 6 {
		if strings.Trim(fraction, "0123456789") != "" {
			return 0, ErrPrice
		}
		perHour = whole + "." + fraction[:6]
	}
	c, err := ParseCredits(perHour)
	if err != nil {
		return 0, ErrPrice
	}
	return PriceOf(c)
}

// PriceOf returns the price per second of credits per hour, rounded as by
// ParsePrice.
func PriceOf(perHour Credits) (Price, error) {
	if perHour <= 0 || perHour > MaxPrice.PerHour() {
		return 0, ErrPrice
	}
	return max(Price((perHour+secondsPerHour/2)/secondsPerHour), 1), nil
}

// PriceOfNumber is ParsePrice for a number of a configuration file.
func PriceOfNumber(perHour float64) (Price, error) {
	if math.IsNaN(perHour) || perHour <= 0 || perHour > float64(MaxPrice.PerHour())/float64(Credit) {
		return 0, ErrPrice
	}
	return ParsePrice(strconv.FormatFloat(perHour, 'f', -1, 64))
}
