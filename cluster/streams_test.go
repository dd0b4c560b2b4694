package cluster_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
)

// TestStreamsHaveTheirOwnConnection ends the connection of a stream while a call
// between the same two peers waits for its answer. The call gets it: calls never
// queue behind the data of streams.
func TestStreamsHaveTheirOwnConnection(t *testing.T) {
	f := newFleet(t, nil)
	arrived, release := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	f.handle = func(c *cluster.Cluster) {
		c.Handle("test.wait", cluster.Servers, func(context.Context, rpc.Peer, []byte) ([]byte, error) {
			close(arrived)
			<-release
			return []byte("still there"), nil
		})
		c.HandleStream("test.break", cluster.Servers,
			func(_ context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
				if err := stream.Accept(nil); err != nil {
					return err
				}
				// Open has returned by then: it fails if the session ends at once.
				if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
					return err
				}
				return stream.Session().Close()
			})
	}
	f.mustAdd()
	f.mustAdd()
	t.Cleanup(end) // Before the peers close: they wait for the call.
	f.awaitVoters(2)
	from, to := f.peers[0], f.peers[1].ID()
	staying := compute.StayHere(t.Context())
	if _, err := from.Call(staying, to, "test.wait", nil); compute.CodeOf(err) != compute.CodeUnavailable || !errors.Is(err, rpc.ErrNotSent) {
		t.Errorf("a call that stays here: %v", err)
	}
	if _, _, err := from.Open(staying, to, "test.break", nil); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a stream that stays here: %v", err)
	}
	answered := make(chan string, 1)
	go func() {
		answer, err := from.Call(t.Context(), to, "test.wait", nil)
		if err != nil {
			t.Error(err)
		}
		answered <- string(answer)
	}()
	<-arrived
	_, stream, err := from.Open(t.Context(), to, "test.break", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_, _ = stream.Write([]byte{1}) // The session may end before it knows that this was sent.
	if rest, err := io.ReadAll(stream); len(rest) > 0 {
		t.Errorf("the stream brings %q, %v", rest, err)
	}
	end()
	if answer := <-answered; answer != "still there" {
		t.Errorf("the call is answered with %q", answer)
	}
}
