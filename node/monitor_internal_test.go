package node

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"berth/timerslack"
)

// TestFollowWork checks that a process has coarse timers from its second garbage collection on,
// and the usual ones once there was none for a while.
func TestFollowWork(t *testing.T) {
	set, ended := make(chan time.Duration), make(chan error, 1)
	go func() {
		ended <- followWork(t.Context(), time.Second, func(slack time.Duration) error {
			select {
			case set <- slack:
			case <-t.Context().Done():
			}
			return nil
		})
	}()
	for _, want := range []time.Duration{timerslack.Default, timerslack.Node, timerslack.Default, timerslack.Node} {
		for got := time.Duration(0); got != want; {
			select {
			case got = <-set:
			case <-time.After(10 * time.Millisecond):
				if want == timerslack.Node {
					runtime.GC()
				}
			case err := <-ended:
				t.Fatal(err)
			}
		}
	}
}

// TestFollowWorkFails checks that an error ends it: the capability is missing.
func TestFollowWorkFails(t *testing.T) {
	missing := errors.New("not permitted")
	err := followWork(t.Context(), time.Millisecond, func(time.Duration) error { return missing })
	if !errors.Is(err, missing) {
		t.Errorf("it ended with %v, want the error", err)
	}
}
