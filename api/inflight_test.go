package api_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"berth/api/edge"
	"berth/api/handler"
	"berth/fsm/command"
)

// gate is a proposer that holds what is submitted until it is opened.
type gate struct {
	edge.Proposer

	entered chan struct{} // One for each submit.
	opened  chan struct{} // Closed when they may go on.
}

func (g *gate) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	if _, ok := cmd.(command.Submit); ok {
		g.entered <- struct{}{}
		<-g.opened
	}
	return g.Proposer.Propose(ctx, cmd)
}

func TestRepeatOfARequestInFlight(t *testing.T) {
	g := &gate{entered: make(chan struct{}, 4), opened: make(chan struct{})}
	w := newWorld(t, func(c *handler.Config) { g.Proposer, c.Proposer = c.Proposer, g })
	const path = "/execution/streaming/start"
	body, other := map[string]any{"code": "print(1)"}, map[string]any{"code": "print(2)"}
	first := make(chan answer, 1)
	go func() { first <- w.send("POST", path, w.adaKey, body, "Idempotency-Key", "k") }()
	<-g.entered
	a := w.want(409, "idempotency_in_flight", "POST", path, w.adaKey, body, "Idempotency-Key", "k")
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	w.want(409, "idempotency_key_reused", "POST", path, w.adaKey, other, "Idempotency-Key", "k")
	foreign := make(chan answer, 1) // Another organization's key is another one.
	go func() { foreign <- w.send("POST", path, w.bobKey, other, "Idempotency-Key", "k") }()
	<-g.entered
	close(g.opened)
	done := <-first
	if done.status != 200 || (<-foreign).status != 200 {
		t.Fatalf("the first request = %d %s", done.status, done.body)
	}
	if again := w.mustDo("POST", path, w.adaKey, body, nil, "Idempotency-Key", "k"); string(again.body) != string(done.body) {
		t.Errorf("the first answer was %s, later %s", done.body, again.body)
	}
}

// TestCrowded checks that the node hears of the fourth request at once, and not of the third.
func TestCrowded(t *testing.T) {
	g := &gate{entered: make(chan struct{}, 4), opened: make(chan struct{})}
	var crowds atomic.Int32
	w := newWorld(t, func(c *handler.Config) {
		g.Proposer, c.Proposer = c.Proposer, g
		c.Crowded = func() { crowds.Add(1) }
	})
	var answers sync.WaitGroup
	for n := range int32(4) {
		answers.Go(func() {
			w.send("POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "print(1)"})
		})
		<-g.entered
		if got, want := crowds.Load(), max(n-2, 0); got != want {
			t.Errorf("with %d requests it heard of %d crowds, want %d", n+1, got, want)
		}
	}
	close(g.opened)
	answers.Wait()
}

func TestDrain(t *testing.T) {
	w := newWorld(t)
	if a := w.mustDo("GET", "/readyz", "", nil, nil); a.header.Get("Connection") != "" {
		t.Errorf("before: Connection is %q", a.header.Get("Connection"))
	}
	w.server.Drain()
	a := w.want(503, "not_ready", "GET", "/readyz", "", nil)
	if !strings.Contains(string(a.body), "stopping") {
		t.Errorf("/readyz says %s", a.body)
	}
	// It answers all the same, and ends each connection.
	w.start("cpu")
	w.mustDo("GET", "/livez", "", nil, nil)
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	req, err := http.NewRequest("GET", w.url+"/livez", nil)
	w.ok(err)
	w.ok(req.Write(conn))
	resp := readResponse(t, conn)
	defer resp.Body.Close()
	if resp.StatusCode != 200 || !resp.Close {
		t.Errorf("GET /livez = %d, close %t", resp.StatusCode, resp.Close)
	}
}

// readResponse reads an answer as it is on the wire.
func readResponse(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp
}
