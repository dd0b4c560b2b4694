package edge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/edge/answer"
)

// noRelay is the relay of a node that is never asked.
type noRelay struct{}

func (noRelay) Relay(context.Context, Relayed) (*RelayedAnswer, error) { return nil, io.EOF }
func (noRelay) Status() QueryMeta                                      { return QueryMeta{} }

// TestRelayClasses fills the places for streams on a worker: one credential gets
// its share of them, and requests and operators are relayed still.
func TestRelayClasses(t *testing.T) {
	s, err := New(Config{Relay: noRelay{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	stream := func(owner int) (func(), error) {
		return s.takeRelay(&Relayed{Path: StreamRoot + "/stream/{id}", Bearer: fmt.Sprint(owner)})
	}
	var release func()
	for owner := range relayedStreamShare {
		for range maxRelayedStreams / relayedStreamShare {
			if release, err = stream(owner); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := stream(owner); err == nil {
			t.Errorf("credential %d has more than its share", owner)
		}
	}
	if _, err := stream(relayedStreamShare); err == nil {
		t.Error("more streams are relayed than there are places")
	}
	if _, err := s.takeRelay(&Relayed{Path: Root + "/execution/{id}", Args: map[string]string{"wait": "1s"}, IP: "a"}); err == nil {
		t.Error("a held answer is not a stream")
	}
	for _, path := range []string{Root + "/user/status", Root + "/admin/raft/snapshot"} {
		if _, err := s.takeRelay(&Relayed{Path: path, Bearer: "0"}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	release()
	if _, err := stream(relayedStreamShare); err != nil {
		t.Errorf("the place of a stream that has ended: %v", err)
	}
}

// TestEventsAreTold: only a stream of events is taken up behind one that came;
// a file is not.
func TestEventsAreTold(t *testing.T) {
	for kind, want := range map[string]bool{
		answer.EventStream: true, answer.EventStream + "; charset=utf-8": true, answer.OctetStream: false, "": false,
	} {
		a := RelayedAnswer{RelayedHead: RelayedHead{Stream: true, Header: [][2]string{{"Content-Type", kind}}}}
		if a.Events() != want {
			t.Errorf("%q is a stream of events: %t", kind, !want)
		}
	}
}
