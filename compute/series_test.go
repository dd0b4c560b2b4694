package compute_test

import (
	"testing"

	"berth/compute"
)

func TestSeriesOfTheNewestAttempts(t *testing.T) {
	var e compute.Execution
	if _, ok := e.SeriesOf(1); ok {
		t.Error("an execution has metrics before its first attempt has ended")
	}
	for epoch := range uint64(40) {
		before := e
		e.AddSeries(epoch+1, compute.Hash{byte(epoch)})
		if blob, ok := e.SeriesOf(epoch + 1); !ok || blob != (compute.Hash{byte(epoch)}) {
			t.Errorf("attempt %d has %v, %v", epoch+1, blob, ok)
		}
		if _, ok := before.SeriesOf(epoch + 1); ok {
			t.Error("a record that was read changes")
		}
	}
	n := 0
	for range compute.SeriesIn(e.Series) {
		n++
	}
	if _, ok := e.SeriesOf(24); ok || n != 16 {
		t.Errorf("%d attempts have metrics", n)
	}
}
