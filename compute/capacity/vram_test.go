package capacity_test

import (
	"slices"
	"testing"

	"berth/compute/capacity"
)

// TestLeastMemoryOfDevices checks that a request that asks for memory gets
// devices that have it, on nodes whose devices of one type differ in it.
func TestLeastMemoryOfDevices(t *testing.T) {
	n := node("a100", 0, 0, 0)
	n.GPUs[0].VRAMMiB, n.GPUs[1].VRAMMiB, n.GPUs[2].VRAMMiB = 40<<10, 81559, 81559
	same := node("a100", 0, 0)
	same.GPUs[0].VRAMMiB, same.GPUs[1].VRAMMiB = 40<<10, 40<<10
	kinds := capacity.NewKinds()
	var mixed, small capacity.Node
	mixed.Load(n, kinds)
	small.Load(same, kinds)
	for _, test := range []struct {
		gpus, milli         int
		minMiB              int64
		holds               int
		first               []int
		fitsMixed, fitsSame bool
	}{
		{1, 1000, 0, 3, []int{0}, true, true},
		{1, 1000, 40 << 10, 3, []int{0}, true, true},
		{1, 1000, 80 << 10, 2, []int{1}, true, false},
		{2, 1000, 80 << 10, 1, []int{1, 2}, true, false},
		{3, 1000, 80 << 10, 0, nil, false, false},
		{1, 500, 80 << 10, 4, []int{1}, true, false},
		{1, 1000, 141 << 10, 0, nil, false, false},
	} {
		r := request("a100", test.gpus, test.milli)
		r.MinVRAMMiB = test.minMiB
		q := kinds.Shape(&r)
		if got := mixed.Fits(&q); got != test.fitsMixed {
			t.Errorf("%+v fits the mixed node: %v", test, got)
		}
		if got := small.Fits(&q); got != test.fitsSame {
			t.Errorf("%+v fits the small devices: %v", test, got)
		}
		if got := mixed.Holds(&q); got != test.holds {
			t.Errorf("%+v: holds %d", test, got)
		}
		if got := mixed.FirstFree(&q); test.fitsMixed && !slices.Equal(got, test.first) {
			t.Errorf("%+v: first %v", test, got)
		}
		if got := mixed.Nearest(&q, nil); test.fitsMixed && !slices.Equal(got, test.first) {
			t.Errorf("%+v: nearest %v", test, got)
		}
		if _, healthy := mixed.OfKind(&q); (healthy >= test.gpus) != test.fitsMixed {
			t.Errorf("%+v: %d healthy", test, healthy)
		}
	}
}
