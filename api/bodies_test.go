package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/edge"
	"berth/api/handler"
)

// relayTo is the relay of a worker in this process: the world's server answers.
type relayTo struct {
	*world

	mu sync.Mutex

	asked []edge.Relayed
}

func (r *relayTo) Relay(ctx context.Context, in edge.Relayed) (*edge.RelayedAnswer, error) {
	r.mu.Lock()
	r.asked = append(r.asked, in)
	r.mu.Unlock()
	near, far := net.Pipe()
	body, w := io.Pipe()
	heads := make(chan edge.RelayedHead, 1)
	failed := make(chan error, 1)
	go func() {
		defer near.Close()
		defer far.Close()
		err := r.server.Relayed(ctx, in, near, func(h edge.RelayedHead) (io.Writer, error) {
			heads <- h
			return w, nil
		})
		w.CloseWithError(err)
		failed <- err
	}()
	select {
	case head := <-heads:
		return &edge.RelayedAnswer{RelayedHead: head, Body: body}, nil
	case err := <-failed:
		return nil, err
	}
}

func (r *relayTo) Status() edge.QueryMeta { return edge.QueryMeta{KnownLeader: true} }

// bodiesAsked returns the largest body that was relayed so far, in bytes.
func (r *relayTo) bodiesAsked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := 0
	for _, in := range r.asked {
		most = max(most, len(in.Body))
	}
	return most
}

// streamRelay has the world's server answer requests whose bodies a worker does not
// hold.
func (w *world) streamRelay() http.RoundTripper {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			if err := w.server.ServeServices(far); err != nil {
				far.Close()
			}
		}()
		return near, nil
	}}
	w.Cleanup(transport.CloseIdleConnections)
	return transport
}

// newWorker returns a worker's API in front of the world's server.
func (w *world) newWorker(change ...func(*handler.Config)) (relay *relayTo, worker *world) {
	w.Helper()
	relay = &relayTo{world: w}
	registry := prometheus.NewRegistry()
	worker = &world{TB: w.TB, cfg: handler.Config{
		Config:   edge.Config{Relay: relay, Logger: w.cfg.Logger, Limits: w.cfg.Limits, Registerer: registry},
		Gatherer: registry,
	}}
	worker.cfg.ServiceRelay = w.streamRelay()
	for _, f := range change {
		f(&worker.cfg)
	}
	worker.serve()
	return relay, worker
}

// listen serves the world's API on a TCP port of its own, as a node does.
func (w *world) listen() {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, l) }()
	w.Cleanup(func() {
		cancel()
		w.ok(<-ended)
	})
	w.dial = func() (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(w.Context(), "tcp", l.Addr().String())
	}
}

// startHead is the head of a start with a body of a length, and of one whose
// length is not known for a negative one.
func startHead(bearer string, length int) string {
	framing := "Transfer-Encoding: chunked"
	if length >= 0 {
		framing = fmt.Sprintf("Content-Length: %d", length)
	}
	return "POST " + root + "/execution/streaming/start HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + bearer +
		"\r\nContent-Type: application/json\r\n" + framing + "\r\n\r\n"
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestStrangersGetNoMemory has connections without a good credential announce
// the largest bodies: on a server and on a worker they are refused, and the
// memory of the node does not grow with the lengths.
func TestStrangersGetNoMemory(t *testing.T) {
	const connections, growth = 150, 128 << 20
	w := newWorld(t)
	relay, worker := w.newWorker()
	w.listen()
	worker.listen()
	stranger := "lk_" + strings.Repeat("x", 60)
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for framing, text := range map[string]string{
			"length":  startHead(stranger, 8<<20) + strings.Repeat(" ", 16<<10),
			"chunked": startHead(stranger, -1) + "7fffff\r\n" + strings.Repeat(" ", 16<<10),
		} {
			before := heap()
			statuses := make(chan int, connections)
			for range connections {
				conn, err := node.dial()
				w.ok(err)
				defer conn.Close()
				_, err = io.WriteString(conn, text)
				w.ok(err)
				w.ok(conn.SetReadDeadline(time.Now().Add(time.Minute)))
				go func() {
					status := 0
					if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
						status = resp.StatusCode
						resp.Body.Close()
					}
					statuses <- status
				}()
			}
			node.mustDo("GET", "/user/status", w.adaKey, nil, nil)
			most := heap()
			w.eventually("answer to every stranger", func() bool {
				most = max(most, heap())
				return len(statuses) == connections || most > before+growth
			})
			if most > before+growth {
				t.Fatalf("%s, %s: the heap grew from %d to %d MiB", name, framing, before>>20, most>>20)
			}
			for range connections {
				if got := <-statuses; got != 401 {
					t.Fatalf("%s, %s: a stranger's status is %d, want 401", name, framing, got)
				}
			}
		}
	}
	if got := relay.bodiesAsked(); got != 0 {
		t.Errorf("the worker relayed a body of %d bytes for a stranger", got)
	}
	worker.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "1", "import_files": `{"a":"` + strings.Repeat("x", 2<<20) + `"}`,
	}, nil)
	if got := relay.bodiesAsked(); got < 2<<20 {
		t.Errorf("the worker relayed at most %d bytes of a start of 2 MiB", got)
	}
}

// TestBodiesShareABudget fills the budget with bodies that do not end: more of
// them are refused for now, first those of the same organization, while small
// requests and those of operators are answered.
func TestBodiesShareABudget(t *testing.T) {
	const body, arrives = 250 << 10, 200 << 10
	for _, name := range []string{"server", "worker"} {
		w := newWorld(t, func(c *handler.Config) { c.Limits.Bodies = 1 << 20 })
		node := w
		if name == "worker" {
			_, node = w.newWorker()
		}
		var open []net.Conn
		begin := func(key string) net.Conn {
			conn, err := node.dial()
			w.ok(err)
			open = append(open, conn)
			w.ok(conn.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err = io.WriteString(conn, startHead(key, body)+strings.Repeat(" ", arrives))
			w.ok(err)
			return conn
		}
		fill := func(key, who string) {
			answers := make(chan answer, 1)
			// One fits into half of the budget: at 128 KiB the second has to grow
			// to 250 KiB, which it needs beside them.
			for range 2 {
				conn := begin(key)
				go func() {
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						return
					}
					text, _ := io.ReadAll(resp.Body) // The status says enough.
					resp.Body.Close()
					answers <- answer{resp.StatusCode, resp.Header, text}
				}()
			}
			if a := <-answers; a.status != 503 || a.code() != "too_many_bytes" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: one body too many of %s is answered %d %s", name, who, a.status, a.body)
			}
		}
		fill(w.adaKey, "ada")
		node.mustDo("POST", "/execution/streaming/start", w.bobKey, large(body), nil)
		fill(w.bobKey, "bob")
		node.want(503, "too_many_bytes", "POST", "/execution/streaming/start", w.bobKey, large(body))
		node.mustDo("POST", "/execution/streaming/start", w.adaKey, `{"code":"1"}`, nil)
		node.mustDo("POST", "/admin/brake", rootToken, `{"share_percent":30}`+strings.Repeat(" ", body), nil)
		for _, conn := range open {
			conn.Close()
		}
		node.eventually("budget that is free again", func() bool {
			return node.send("POST", "/execution/streaming/start", w.adaKey, large(body)).status == 200
		})
	}
}

// TestRelayedBodiesAreGivenBack relays more bytes, one start after the other, than the
// budget for bodies has.
func TestRelayedBodiesAreGivenBack(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.Bodies = 1 << 20 })
	_, worker := w.newWorker()
	for range 10 {
		worker.mustDo("POST", "/execution/streaming/start", w.adaKey, large(200<<10), nil)
	}
}

// TestReportsShareABudget fills one address's part of the budget for reports with bodies
// that do not end: another report is refused for now, and what has a credential is read.
func TestReportsShareABudget(t *testing.T) {
	const share = 2 << 20
	w := newWorld(t)
	w.listen()
	head := fmt.Sprintf("POST %s/billing/webhook HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", root, edge.ReportBody)
	var open []net.Conn
	for range share / (64 << 10) { // Each holds 64 KiB, and waits for more.
		conn, err := w.dial()
		w.ok(err)
		open = append(open, conn)
		_, err = io.WriteString(conn, head+strings.Repeat(" ", 20<<10))
		w.ok(err)
	}
	report := head + strings.Repeat(" ", edge.ReportBody)
	w.eventually("refusal of a report", func() bool {
		a := w.raw(report)
		return a.status == 503 && a.code() == "too_many_bytes"
	})
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, large(200<<10), nil)
	for _, conn := range open {
		conn.Close()
	}
	w.eventually("report that is taken", func() bool { return w.raw(report).status == 200 })
}

// large returns a start of about so many bytes.
func large(bytes int) string { return `{"code":"1"}` + strings.Repeat(" ", bytes) }

// TestBodyLimits sends bodies around the limits of their routes, with and
// without a length.
func TestBodyLimits(t *testing.T) {
	w := newWorld(t)
	refresh, start := "POST "+root+"/auth/refresh", "POST "+root+"/execution/streaming/start"
	for _, tc := range []struct {
		name, line, bearer string
		bytes, status      int
	}{
		{"small without a credential", refresh, "", edge.InlineBody, 422},
		{"large without a credential", refresh, "", edge.InlineBody + 1, 413},
		{"large where none is needed", refresh, w.adaKey, edge.InlineBody + 1, 413},
		{"largest report", "POST " + root + "/billing/webhook", "", edge.ReportBody, 200},
		{"too large a report", "POST " + root + "/billing/webhook", "", edge.ReportBody + 1, 413},
		{"none is expected", "GET " + root + "/user/status", w.adaKey, edge.InlineBody, 200},
		{"large where none is expected", "GET " + root + "/user/status", w.adaKey, edge.InlineBody + 1, 413},
		{"small start of a stranger", start, "", edge.InlineBody, 401},
		{"large start of a stranger", start, "", edge.InlineBody + 1, 401},
		{"small start", start, w.adaKey, edge.InlineBody, 422},
		{"large start", start, w.adaKey, edge.InlineBody + 1, 422},
		{"largest start", start, w.adaKey, 8 << 20, 422},
		{"too large a start", start, w.adaKey, 8<<20 + 1, 413},
		{"large key", "POST " + root + "/orgs/ada-lab/api-keys", w.adaKey, 1 << 20, 422},
		{"too large a key", "POST " + root + "/orgs/ada-lab/api-keys", w.adaKey, 1<<20 + 1, 413},
	} {
		text := "{" + strings.Repeat(" ", tc.bytes-2) + "}"
		head := tc.line + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + tc.bearer + "\r\n"
		for framing, whole := range map[string]string{
			"length":     fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, tc.bytes, text),
			"one chunk":  fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, tc.bytes, text),
			"two chunks": fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", head, text[:5], tc.bytes-5, text[5:]),
		} {
			if a := w.raw(whole); a.status != tc.status {
				t.Errorf("%s, %s: %d %s, want %d", tc.name, framing, a.status, a.body, tc.status)
			}
		}
	}
}

// TestRefusedBodiesGetTheirAnswer sends whole bodies that are refused before they
// are read, and only then reads: the answer is there.
func TestRefusedBodiesGetTheirAnswer(t *testing.T) {
	const tries = 5
	w := newWorld(t)
	_, worker := w.newWorker()
	w.listen()
	worker.listen()
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for _, tc := range []struct {
			bearer        string
			bytes, status int
		}{
			{"lk_" + strings.Repeat("x", 60), 8 << 20, 401},
			{w.adaKey, 8<<20 + 1, 413},
		} {
			for range tries {
				conn, err := node.dial()
				w.ok(err)
				w.ok(conn.SetDeadline(time.Now().Add(time.Minute)))
				if _, err := io.WriteString(conn, startHead(tc.bearer, tc.bytes)+strings.Repeat(" ", tc.bytes)); err != nil {
					t.Fatalf("%s, %d: the connection ends while the body is sent: %v", name, tc.status, err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("%s, %d: no answer: %v", name, tc.status, err)
				}
				resp.Body.Close()
				conn.Close()
				if resp.StatusCode != tc.status {
					t.Errorf("%s: answered %d, want %d", name, resp.StatusCode, tc.status)
				}
			}
		}
	}
}
