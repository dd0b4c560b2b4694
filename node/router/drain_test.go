package router_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"berth/fsm/command"
)

// TestDrain drains a replica that has a request: the request goes on, and the next ones
// go to the other replica. A connection whose protocol has changed does not count.
func TestDrain(t *testing.T) {
	entered, release := make(chan byte), make(chan struct{})
	f := newFleet(t, func(n byte, w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			entered <- n
			<-release
		}
		name(n, w, r)
	})
	answers := make(chan string, 1)
	go func() { answers <- f.ask(t, http.MethodGet, nil) }()
	first := <-entered
	if got := f.Drain(replicaID(first)); got != 1 {
		t.Errorf("%d requests are under way", got)
	}
	other := string([]byte{'0' + 3 - first, ' '})
	for range 4 {
		if got := f.ask(t, http.MethodPost, nil); got != other {
			t.Errorf("a service is answered by %q, not by %q", got, other)
		}
		answer, err := f.infer(t, 7)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(answer.Body); err != nil || string(data) != other+"body" {
			t.Errorf("a model is answered by %q, %v", data, err)
		}
		answer.Body.Close()
	}
	close(release)
	if got := <-answers; got != string([]byte{'0' + first, ' '}) {
		t.Errorf("the first request got %q", got)
	}
	if got := f.Drain(replicaID(first)); got != 0 {
		t.Errorf("after the end %d requests are under way", got)
	}
	f.Drain(replicaID(3 - first))
	if got := f.ask(t, http.MethodPost, nil); got != "no_ready_replica" {
		t.Errorf("with both drained got %q", got)
	}
	if answer, err := f.infer(t, 0); err == nil {
		answer.Body.Close()
		t.Error("with both drained a model is answered")
	}
}

// TestDrainLeavesWebSockets does not wait for connections that have another protocol.
func TestDrainLeavesWebSockets(t *testing.T) {
	f := newFleet(t, func(_ byte, w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, conn)
		conn.Close()
	})
	view := f.Machine.View()
	service, _ := view.AnyExecution(f.id)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	req.RequestURI = ""
	answer, err := f.RoundTrip(view, service, req)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", answer, err)
	}
	for n := byte(1); n <= 2; n++ {
		if got := f.Drain(replicaID(n)); got != 0 {
			t.Errorf("replica %d has %d requests under way", n, got)
		}
	}
	answer.Body.Close()
	answer.Body.Close() // Once more changes nothing.
	for n := byte(1); n <= 2; n++ {
		if got := f.Drain(replicaID(n)); got != 0 {
			t.Errorf("after the end replica %d has %d requests under way", n, got)
		}
	}
}

// TestPreemptedReplicas leaves out a replica that is being preempted while there is
// another one.
func TestPreemptedReplicas(t *testing.T) {
	f := newFleet(t, name)
	f.ready(replicaID(1), false) // A drain leaves those that are ready.
	f.Must(command.DrainNode{Op: f.NextOp(), Actor: command.Actor{Root: true}, Node: f.Node, Drained: true, Within: time.Hour})
	f.ready(replicaID(1), true)
	if attempts := f.Machine.View().Attempts(replicaID(1)); attempts[0].PreemptAt.IsZero() {
		t.Fatal("it is not being preempted")
	}
	for range 4 {
		if got := f.ask(t, http.MethodGet, nil); got != "2 " {
			t.Errorf("got %q", got)
		}
	}
	f.ready(replicaID(2), false)
	if got := f.ask(t, http.MethodGet, nil); got != "1 " {
		t.Errorf("of no other one got %q", got)
	}
}
