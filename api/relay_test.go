package api

import "testing"

// TestEventsAreTold: only a stream of events is taken up behind one that came;
// a file is not.
func TestEventsAreTold(t *testing.T) {
	for kind, want := range map[string]bool{
		eventStream: true, eventStream + "; charset=utf-8": true, octetStream: false, "": false,
	} {
		a := RelayedAnswer{RelayedHead: RelayedHead{Stream: true, Header: [][2]string{{"Content-Type", kind}}}}
		if a.Events() != want {
			t.Errorf("%q is a stream of events: %t", kind, !want)
		}
	}
}
