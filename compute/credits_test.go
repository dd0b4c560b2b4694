package compute_test

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"berth/compute"
)

func TestParseCredits(t *testing.T) {
	tests := []struct {
		text string
		want compute.Credits
		ok   bool
	}{
		{"0", 0, true},
		{"-0", 0, true},
		{"1", compute.Credit, true},
		{"100", 100 * compute.Credit, true},
		{"0.000001", 1, true},
		{"0.0055", 5500, true},
		{".5", 500_000, true},
		{"1.5000000000", 1_500_000, true},
		{"-2.25", -2_250_000, true},
		{"007", 7 * compute.Credit, true},
		{"9223372036854.775807", math.MaxInt64, true},
		{"9223372036854.775808", 0, false},
		{"99999999999999999999", 0, false},
		{"0.0000001", 0, false},
		{"", 0, false},
		{".", 0, false},
		{"-", 0, false},
		{"--1", 0, false},
		{"+1", 0, false},
		{"1.-5", 0, false},
		{"1.2.3", 0, false},
		{"1e3", 0, false},
		{"1_000", 0, false},
		{"0x10", 0, false},
		{" 1", 0, false},
		{"NaN", 0, false},
		{"null", 0, false},
		{"１", 0, false},
		{strings.Repeat("9", 10_000), 0, false},
	}
	for _, tt := range tests {
		got, err := compute.ParseCredits(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%.40q: got %d, %v; want %d, ok %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

// TestAmounts says what is wrong with an amount, and what the largest one is.
func TestAmounts(t *testing.T) {
	for text, want := range map[string]string{
		"0.000001": "", "1152921504606.846976": "",
		"1152921504606.846977": "at most 1152921504606.846976", "9223372036854.775808": "at most 1152921504606.846976",
		strings.Repeat("9", 100): "at most 1152921504606.846976",
		"0":                      "above 0", "-1": "above 0", "-" + strings.Repeat("9", 100): "six decimals", "0.0000001": "six decimals", "": "six decimals",
		"1e30": "six decimals",
	} {
		_, err := compute.ParseAmount(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestCreditsString(t *testing.T) {
	tests := []struct {
		credits compute.Credits
		want    string
	}{
		{0, "0"},
		{1, "0.000001"},
		{-1, "-0.000001"},
		{5500, "0.0055"},
		{compute.Credit, "1"},
		{-12_340_000, "-12.34"},
		{math.MaxInt64, "9223372036854.775807"},
		{math.MinInt64, "-9223372036854.775808"},
	}
	for _, tt := range tests {
		if got := tt.credits.String(); got != tt.want {
			t.Errorf("%d: got %s, want %s", int64(tt.credits), got, tt.want)
		}
	}
}

func TestCreditsTravelExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		want := compute.Credits(rng.Int64() >> rng.IntN(63))
		if rng.IntN(2) == 0 {
			want = -want
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got compute.Credits
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%s came back as %d, %v; want %d", text, got, err, want)
		}
	}
	var c compute.Credits
	if json.Unmarshal([]byte(`"5"`), &c) == nil || json.Unmarshal([]byte(`0.0000005`), &c) == nil {
		t.Error("text or half a micro-credit is accepted")
	}
}

func TestCharge(t *testing.T) {
	tests := []struct {
		name  string
		price compute.Price
		d     time.Duration
		want  compute.Credits
	}{
		{"nothing", 900, 0, 0},
		{"a second", 900, time.Second, 900},
		{"rounds up", 100, 10001 * time.Millisecond, 1001},
		{"rounds up from the least", 1, time.Millisecond, 1},
		{"does not round what is exact", 1000, time.Millisecond, 1},
		{"below a millisecond", 900, 999 * time.Microsecond, 0},
		{"an hour is 3,600 seconds", 900, time.Hour, compute.Price(900).PerHour()},
		{"a negative price", -5, time.Hour, 0},
		{"a negative duration", 900, -time.Hour, 0},
		{"beyond 64 bits on the way", math.MaxInt64 / 1000, 1001 * time.Second, math.MaxInt64},
		{"as much as there is", math.MaxInt64, time.Second, math.MaxInt64},
		{"beyond all", math.MaxInt64, math.MaxInt64, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := tt.price.Charge(tt.d); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestPerHourIsExact(t *testing.T) {
	if got := compute.Price(15).PerHour().String(); got != "0.054" {
		t.Errorf("an hour of cpu costs %s, want 0.054", got)
	}
}

// TestChargeAgainstBigIntegers compares with integers that cannot overflow.
func TestChargeAgainstBigIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	most := big.NewInt(math.MaxInt64)
	for range 20_000 {
		price := compute.Price(rng.Int64() >> rng.IntN(63))
		ms := (rng.Int64() / 1_000_000) >> rng.IntN(40)
		want := new(big.Int).Mul(big.NewInt(int64(price)), big.NewInt(ms))
		want.Add(want, big.NewInt(999)).Div(want, big.NewInt(1000))
		if want.Cmp(most) > 0 {
			want = most
		}
		if got := price.Charge(time.Duration(ms) * time.Millisecond); int64(got) != want.Int64() {
			t.Fatalf("%d × %d ms: got %d, want %d", price, ms, got, want)
		}
	}
}

// TestChargeDoesNotWrap uses products whose quotient is all ones and that leave
// a remainder. Rounded up in 64 bits they would cost nothing.
func TestChargeDoesNotWrap(t *testing.T) {
	product := new(big.Int).Lsh(big.NewInt(1000), 64)
	product.Sub(product, big.NewInt(1)) // Quotient 2^64-1, remainder 999.
	tried := 0
	for ms := int64(2001); ms < 2101; ms++ {
		price, less := new(big.Int).DivMod(product, big.NewInt(ms), new(big.Int))
		if less.Int64() >= 999 || !price.IsInt64() {
			continue
		}
		tried++
		if got := compute.Price(price.Int64()).Charge(time.Duration(ms) * time.Millisecond); got != math.MaxInt64 {
			t.Errorf("%d × %d ms: got %d, want all there is", price, ms, got)
		}
	}
	if tried == 0 {
		t.Error("no such product")
	}
}

func TestPaidGrace(t *testing.T) {
	for _, test := range []struct {
		name           string
		ceiling        compute.Credits
		timeout, grace time.Duration
		owed, want     time.Duration
	}{
		{"no ceiling", 0, time.Minute, 10 * time.Second, 0, 10 * time.Second},
		{"ceiling for both", 7000, time.Minute, 10 * time.Second, 0, 10 * time.Second},
		{"ceiling beyond both", 70_000, time.Minute, 10 * time.Second, 0, 10 * time.Second},
		{"ceiling for a part", 500, time.Second, 10 * time.Second, 0, 4 * time.Second},
		{"ceiling for the limit", 100, time.Second, 10 * time.Second, 0, time.Millisecond},
		{"owed", 500, time.Second, 10 * time.Second, 2 * time.Second, 2 * time.Second},
		{"older record", 100, time.Second, 0, 0, 0},
	} {
		e := compute.Execution{
			Price: 100, MaxCredits: test.ceiling, Timeout: test.timeout, StopGrace: test.grace, Owed: test.owed,
		}
		if got := e.PaidGrace(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
