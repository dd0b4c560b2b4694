package api_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// running returns a running execution of key's organization. Its record is never
// cached.
func (w *world) running(key string) compute.ExecutionID {
	w.Helper()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", key, map[string]any{
		"code": "print(1)", "execution_type": "cpu", "timeout": 120,
	}, &started)
	w.place(started.ExecutionID, 1)
	w.begun(started.ExecutionID)
	return started.ExecutionID
}

// ask sends a request for the record of an execution and reads no answer.
func (w *world) ask(key string, id compute.ExecutionID) net.Conn {
	w.Helper()
	conn, err := w.dial()
	w.ok(err)
	if tcp, ok := conn.(*net.TCPConn); ok {
		w.ok(tcp.SetReadBuffer(4 << 10))
	}
	_, err = io.WriteString(conn, "GET "+root+"/execution/"+id.String()+
		" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+key+"\r\n\r\n")
	w.ok(err)
	return conn
}

// TestStrangersGetOneDocument has a stranger send many requests for a large document at
// once.
func TestStrangersGetOneDocument(t *testing.T) {
	w := newWorld(t)
	one := "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
	if got := w.rawAnswers(strings.Repeat(one, 20)); len(got) != 1 || got[0] != 200 {
		t.Errorf("answers are %v, want one", got)
	}
}

// gatedLogs are logs whose ends are read once their gate is opened.
type gatedLogs struct {
	handler.Logs

	tails   atomic.Int64
	entered chan struct{} // One for each read.
	opened  chan struct{} // Closed when they may go on.
}

func (l *gatedLogs) Tail(ctx context.Context, id compute.ExecutionID, maxBytes int) (handler.Output, error) {
	l.tails.Add(1)
	l.entered <- struct{}{}
	<-l.opened
	return l.Logs.Tail(ctx, id, maxBytes)
}

// TestLargeAnswersAreBuiltInTurn has one organization ask for many whole records.
// One is built at a time, another organization does not wait for the rest, and
// none is built for a client that hung up while it waited.
func TestLargeAnswersAreBuiltInTurn(t *testing.T) {
	const waiting = 6
	// Enough for all requests, were they not built in turn.
	g := &gatedLogs{entered: make(chan struct{}, 2*waiting), opened: make(chan struct{})}
	w := newWorld(t, func(c *handler.Config) { g.Logs, c.Logs = c.Logs, g })
	w.listen()
	adas, bobs := w.running(w.adaKey), w.running(w.bobKey)
	inLine := func(n int) func() bool {
		return func() bool { return w.gauge("berth_api_waiting_requests") == n }
	}
	defer w.ask(w.adaKey, adas).Close()
	<-g.entered
	patient := w.ask(w.adaKey, adas)
	defer patient.Close()
	w.eventually("request in line", inLine(1))
	var waits []net.Conn
	for range waiting {
		waits = append(waits, w.ask(w.adaKey, adas))
	}
	w.eventually("line of ada's requests", inLine(1+waiting))
	defer w.ask(w.bobKey, bobs).Close()
	<-g.entered
	for _, conn := range waits {
		conn.Close()
	}
	w.eventually("line of those that stay", inLine(1))
	close(g.opened)
	if resp := readResponse(t, patient); resp.StatusCode != 200 { //nolint:bodyclose // It is closed there.
		t.Errorf("the client that waited got %d", resp.StatusCode)
	}
	if got := g.tails.Load(); got != 3 {
		t.Errorf("%d answers were built, want those of 3 clients that stayed", got)
	}
}

// TestLargeBodiesAreDecodedInTurn has one organization start several executions
// with large files: one is decoded at a time. Another organization and small
// starts do not wait for the others.
func TestLargeBodiesAreDecodedInTurn(t *testing.T) {
	const waiting = 3
	g := &gate{entered: make(chan struct{}, 2*waiting), opened: make(chan struct{})}
	w := newWorld(t, func(c *handler.Config) { g.Proposer, c.Proposer = c.Proposer, g })
	answers := make(chan answer)
	starts := 0
	start := func(key, body string) {
		starts++
		go func() { answers <- w.send("POST", "/execution/streaming/start", key, body) }()
	}
	bundle := `{"code":"` + strings.Repeat("x", 512<<10) + `"}`
	start(w.adaKey, bundle)
	<-g.entered
	for range waiting {
		start(w.adaKey, bundle)
	}
	w.eventually("line of ada's starts", func() bool { return w.gauge("berth_api_waiting_requests") == waiting })
	start(w.bobKey, bundle)
	<-g.entered
	start(w.adaKey, `{"code":"1"}`)
	<-g.entered
	if len(g.entered) != 0 {
		t.Error("a start did not wait for its turn")
	}
	close(g.opened)
	for range starts {
		if a := <-answers; a.status != 200 {
			t.Errorf("a start is answered %d %s", a.status, a.body)
		}
	}
}

// TestUnreadAnswersShareABudget has clients ask for large answers and not read
// them: more answers of their organization are refused until they hang up, and
// other organizations get theirs.
func TestUnreadAnswersShareABudget(t *testing.T) {
	const output = 6 << 20 // Bytes. Two answers fit into the half of 32 MiB.
	w := newWorld(t)
	adas, bobs := w.running(w.adaKey), w.running(w.bobKey)
	for _, id := range []compute.ExecutionID{adas, bobs} {
		w.logs.write(id, handler.Line{Seq: 1, Stream: "stdout", Text: []byte(strings.Repeat("x", output))})
	}
	_, worker := w.newWorker()
	w.listen()
	worker.listen()
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		var open []net.Conn
		path := "/execution/"
		node.eventually(name+" that refuses", func() bool {
			// One that is refused itself, because of an answer that is being read, holds nothing.
			open = append(open, node.ask(w.adaKey, adas))
			a := node.send("GET", path+adas.String(), w.adaKey, nil)
			return a.status == 503 && a.code() == "too_many_bytes" && a.header.Get("Retry-After") != ""
		})
		node.mustDo("GET", path+bobs.String(), w.bobKey, nil, nil)
		node.mustDo("GET", "/user/status", w.adaKey, nil, nil)
		for _, conn := range open {
			conn.Close()
		}
		node.eventually(name+" that answers again", func() bool {
			return node.send("GET", path+adas.String(), w.adaKey, nil).status == 200
		})
	}
}

// TestScrapesOfStrangersAreLimited scrapes a node whose metrics need no token.
func TestScrapesOfStrangersAreLimited(t *testing.T) {
	const burst = 5
	w := newWorld(t, func(c *handler.Config) { c.Limits.AnonRate, c.Limits.AnonBurst = 1, burst })
	for range burst {
		w.mustDo("GET", "/metrics", "", nil, nil)
	}
	w.want(429, "rate_limited", "GET", "/metrics", "", nil)
	w.pass(2e9)
	w.mustDo("GET", "/metrics", "", nil, nil)
}
