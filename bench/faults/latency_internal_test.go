package faults

import (
	"reflect"
	"testing"
	"time"
)

// TestLatency checks which writes count as before a fault and which as during
// it. Writes in flight at its begin or end count as neither.
func TestLatency(t *testing.T) {
	const s = int64(time.Second)
	counts := newTally()
	counts.noteWrite(wrote{"n1", 1 * s, 2 * s})
	counts.noteWrite(wrote{"n1", 2 * s, 4 * s})
	counts.noteWrite(wrote{"n1", 9 * s, 11 * s}) // The fault begins at 10 s,
	counts.noteWrite(wrote{"n1", 11 * s, 13 * s})
	counts.noteWrite(wrote{"n1", 12 * s, 15 * s}) // and has taken hold at 12 s.
	counts.noteWrite(wrote{"n2", 13 * s, 18 * s})
	counts.noteWrite(wrote{"n1", 19 * s, 21 * s})
	got := counts.latency(10*s, 12*s, 20*s, "n2")
	want := Latency{Before: Spread{2, 1, 2}, During: Spread{2, 3, 5}, Elsewhere: &Spread{1, 3, 3}}
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	counts.forgetWrites(20 * s)
	if got := counts.latency(30*s, 30*s, 40*s, ""); got != nil {
		t.Errorf("got %+v", got)
	}
	if got := counts.spread(0, 40*s, ""); got.Writes != 0 {
		t.Errorf("%d writes are not forgotten", got.Writes)
	}
}
