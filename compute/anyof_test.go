package compute_test

import (
	"testing"
	"time"

	"berth/compute"
)

func TestSameCost(t *testing.T) {
	for _, test := range []struct {
		d           time.Duration
		from, other compute.Price
		want        time.Duration
	}{
		{time.Hour, 100, 900, time.Hour / 9},
		{time.Hour, 900, 100, 9 * time.Hour},
		{10, 3, 7, 4},
		{time.Hour, 0, 7, time.Hour},
		{time.Hour, 7, 0, time.Hour},
		{0, 3, 7, 0},
		{1 << 62, compute.MaxPrice, 1, 1 << 62},
	} {
		if got := test.from.SameCost(test.d, test.other); got != test.want {
			t.Errorf("%s at %d is %s at %d, want %s", test.d, test.from, got, test.other, test.want)
		}
	}
}

// TestTakeAndAccept moves an execution between types: it never costs more than at
// first.
func TestTakeAndAccept(t *testing.T) {
	e := compute.Execution{
		Profile: "gpu.any.2x", Owed: time.Minute, Price: 900, Request: compute.Request{GPUs: 2},
		GPUTypes: []compute.AcceptedType{{Type: "h100", Price: 900}, {Type: "t4", Price: 100}, {Type: "a10", Price: 100}},
	}
	e.Accept()
	if got := e.Request.Types(); got != "a10|t4|h100" || e.Price != 900 || e.Owed != time.Minute {
		t.Errorf("it accepts %s at %d and owes %s", got, e.Price, e.Owed)
	}
	if e.Take("l4") || e.Profile != "gpu.any.2x" {
		t.Errorf("it takes what it does not accept: %s", e.Profile)
	}
	if !e.Take("t4") || e.Profile != "gpu.t4.2x" || e.Price != 100 || e.Owed != 9*time.Minute || e.Request.GPUType != "t4" {
		t.Errorf("it is %s at %d and owes %s", e.Profile, e.Price, e.Owed)
	}
	e.Accept()
	if e.Profile != "gpu.any.2x" || e.Price != 900 || e.Owed != time.Minute {
		t.Errorf("it is %s at %d and owes %s", e.Profile, e.Price, e.Owed)
	}
	plain := compute.Execution{Profile: "gpu.t4", Price: 5}
	plain.Accept()
	if !plain.Take("h100") || plain.Profile != "gpu.t4" || plain.Price != 5 {
		t.Errorf("one of a single type is %+v", plain)
	}
}
