package compute_test

import (
	"math"
	"testing"

	"berth/compute"
)

// TestDefaultPrice checks that the default price rises with the memory and is
// near the built-in list.
func TestDefaultPrice(t *testing.T) {
	for _, test := range []struct {
		vramMiB int64
		want    compute.Price
	}{
		{-1, 15},
		{0, 15},
		{2 << 10, 15},
		{8 << 10, 34},
		{12 << 10, 51},
		{16 << 10, 70},
		{24564, 108},
		{32 << 10, 149},
		{46068, 221},
		{49140, 239},
		{80 << 10, 448},
		{141 << 10, 962},
		{180 << 10, 1368},
		{math.MaxInt64, 351929},
	} {
		if got := compute.DefaultPrice(test.vramMiB); got != test.want {
			t.Errorf("DefaultPrice(%d) = %d, want %d", test.vramMiB, got, test.want)
		}
	}
	last := compute.Price(0)
	for mib := int64(0); mib < 1<<19; mib += 100 {
		p := compute.DefaultPrice(mib)
		if p < last {
			t.Fatalf("%d MiB cost %d, less than a smaller card", mib, p)
		}
		last = p
	}
	book := compute.BuiltInPrices()
	for name, gib := range map[string]int64{
		"t4": 15, "l4": 24, "a10": 24, "l40s": 48, "a100": 80, "h100": 80, "h200": 141, "b200": 180,
	} {
		part := float64(book[name]) / float64(compute.DefaultPrice(gib<<10))
		if part < 0.9 || part > 1.8 {
			t.Errorf("%s costs %.2f times the default", name, part)
		}
	}
}

func TestParsePrice(t *testing.T) {
	for _, test := range []struct {
		text string
		want compute.Price // 0 for none.
	}{
		{"1.2", 333},
		{"0.0036", 1},
		{"0.000001", 1},
		{"2.88", 800},
		{"3600000", compute.MaxPrice},
		{"1.23456789", 343},
		{"0.0000001", 0},
		{"0", 0},
		{"-1", 0},
		{"3600001", 0},
		{"NaN", 0},
		{"1e3", 0},
		{"", 0},
		{"1.2345678x", 0},
		{"Inf", 0},
		{"99999999999999999999", 0},
	} {
		got, err := compute.ParsePrice(test.text)
		if got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("ParsePrice(%q) = %d, %v, want %d", test.text, got, err, test.want)
		}
	}
	for _, number := range []float64{0, -1, math.NaN(), math.Inf(1), 4e6, 1e300} {
		if p, err := compute.PriceOfNumber(number); err == nil {
			t.Errorf("PriceOfNumber(%v) = %d", number, p)
		}
	}
	if p, err := compute.PriceOfNumber(1.2); p != 333 || err != nil {
		t.Errorf("PriceOfNumber(1.2) = %d, %v", p, err)
	}
}
