package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"

	"berth/api"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// raw sends text over a connection of its own and returns the answer.
func (w *world) raw(text string) answer {
	w.Helper()
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	w.ok(err)
	w.ok(conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	w.ok(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	w.ok(err)
	return answer{resp.StatusCode, resp.Header, body}
}

func TestBadHTTP(t *testing.T) {
	w := newWorld(t)
	ping := "GET " + root + "/health/ping HTTP/1.1\r\nHost: a\r\n"
	login := "POST " + root + "/auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	for _, tc := range []struct {
		name, text string
		status     int
		code       string
	}{
		{"good", ping + "\r\n", 200, ""},
		{"no HTTP", "hello\r\n\r\n", 400, "bad_request"},
		{"folded header", ping + "X-A: b\r\n c\r\n\r\n", 400, ""},
		{"folded with a tab", ping + "X-A: b\r\n\tc\r\n\r\n", 400, ""},
		{"two lengths", login + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
		{"length twice", login + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, ""},
		{"credential twice", ping + "Authorization: Bearer " + w.adaKey + "\r\nauthorization: Bearer " + w.bobKey + "\r\n\r\n", 400, "duplicate_header"},
		{"organization twice", ping + "X-Org-Slug: a\r\nX-Org-Slug: a\r\n\r\n", 400, "duplicate_header"},
		{"idempotency key twice", login + "Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\n{}", 400, "duplicate_header"},
		{"host twice", ping + "Host: b\r\n\r\n", 400, ""},
		{"media type twice", login + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 400, ""},
		{"another header twice", ping + "X-A: 1\r\nX-A: 2\r\n\r\n", 200, ""},
		{"no host", "GET " + root + "/health/ping HTTP/1.1\r\n\r\n", 400, ""},
		{"huge header", ping + "X-A: " + strings.Repeat("a", 9<<10) + "\r\n\r\n", 413, "header_too_large"},
		{"huge body", login + "Content-Length: 1048577\r\n\r\n{", 413, "too_large"},
		{"huge start without credential", "POST " + root + "/execution/streaming/start HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n{", 401, "unauthenticated"},
		{"huge start", "POST " + root + "/execution/streaming/start HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + w.adaKey +
			"\r\nContent-Length: 8388609\r\n\r\n{", 413, "too_large"},
		{"chunked start", "POST " + root + "/execution/streaming/start HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + w.adaKey +
			"\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{\"code\":\"1\"}\r\n0\r\n\r\n", 200, ""},
		{"bad chunk", login + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, ""},
		{"unknown method", "BREW " + root + "/health/ping HTTP/1.1\r\nHost: a\r\n\r\n", 405, ""},
		{"options", "OPTIONS " + root + "/auth/login HTTP/1.1\r\nHost: a\r\n\r\n", 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := w.raw(tc.text)
			if a.status != tc.status || (tc.code != "" && a.code() != tc.code) {
				t.Fatalf("= %d %s, want %d %s", a.status, a.body, tc.status, tc.code)
			}
			if a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
				t.Errorf("headers are %v", a.header)
			}
			if a.status != 200 && !strings.HasPrefix(string(a.body), `{"detail":"`) {
				t.Errorf("body is %s", a.body)
			}
		})
	}
}

// TestFramingHasOneReading sends a request whose body is a request of its own.
// If a proxy and this server disagreed on where the body ends, the second one
// would be smuggled: the only answer is a refusal, and the connection closes.
func TestFramingHasOneReading(t *testing.T) {
	w := newWorld(t)
	const smuggled = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(smuggled))
	for _, tc := range []struct{ name, version, framing string }{
		{"identity", "1.1", "Transfer-Encoding: identity\r\n"},
		{"identity in capitals", "1.1", "Transfer-Encoding: IDENTITY\r\n"},
		{"identity and a length", "1.1", "Transfer-Encoding: identity\r\n" + length},
		{"length and identity", "1.1", length + "Transfer-Encoding: identity\r\n"},
		{"chunked and a length", "1.1", "Transfer-Encoding: chunked\r\n" + length},
		{"length and chunked", "1.1", length + "Transfer-Encoding: chunked\r\n"},
		{"gzip", "1.1", "Transfer-Encoding: gzip\r\n"},
		{"gzip and chunked", "1.1", "Transfer-Encoding: gzip, chunked\r\n"},
		{"chunked and identity", "1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"},
		{"chunked twice", "1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"},
		{"chunked with a form feed", "1.1", "Transfer-Encoding: \x0cchunked\r\n"},
		{"a space before the colon", "1.1", "Transfer-Encoding : chunked\r\n"},
		{"nothing", "1.1", "Transfer-Encoding:\r\n"},
		{"chunked in HTTP/1.0", "1.0", "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n"},
		{"identity in HTTP/1.0", "1.0", "Transfer-Encoding: identity\r\nConnection: keep-alive\r\n"},
	} {
		for _, head := range []string{"GET /livez", "POST " + root + "/auth/refresh", "POST /nowhere"} {
			text := head + " HTTP/" + tc.version + "\r\nHost: a\r\n" + tc.framing + "\r\n" + smuggled
			if got := w.rawAnswers(text); len(got) != 1 || got[0] != 400 {
				t.Errorf("%s, %s: statuses are %v, want 400 and no more", head, tc.name, got)
			}
		}
	}
	if got := w.rawAnswers("GET /livez HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + smuggled + smuggled); len(got) != 2 {
		t.Errorf("a GET with a body and another one are answered %v, want two statuses", got)
	}
}

// rawAnswers sends text over a connection of its own, and the end of it, and
// returns the statuses of all answers.
func (w *world) rawAnswers(text string) (statuses []int) {
	w.Helper()
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	_, err = io.WriteString(conn, text+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	w.ok(err)
	w.ok(conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	answers := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return statuses
		}
		_, err = io.Copy(io.Discard, resp.Body)
		w.ok(err)
		resp.Body.Close()
		if resp.StatusCode == http.StatusNotFound && resp.Close {
			return statuses // The last one, which ends the connection.
		}
		statuses = append(statuses, resp.StatusCode)
	}
}

func TestLargeStartIsAccepted(t *testing.T) {
	w := newWorld(t)
	files := strings.Repeat("x", 2<<20)
	w.mustDo("POST", "/execution/streaming/start", w.adaKey,
		`{"code":"1","import_files":"{\"a\":\"`+files+`\"}"}`, nil)
}

// TestRefusedStartStoresNothing starts large executions that the state refuses. Their
// bundles reach no disk.
func TestRefusedStartStoresNothing(t *testing.T) {
	w := newWorld(t)
	random := make([]byte, 200<<10) // It cannot be compressed.
	rand.Read(random)
	files := `"import_files":"{\"a\":\"` + hex.EncodeToString(random) + `\"}"`
	for _, body := range []string{
		`{"code":"1","execution_type":"gpu.nosuch",` + files + `}`,
		`{"code":"1","max_credits":"0.000001",` + files + `}`,
	} {
		if a := w.send("POST", "/execution/streaming/start", w.adaKey, body); a.status < 400 || a.status >= 500 {
			t.Errorf("answered %d %.200s", a.status, a.body)
		}
	}
	if n := len(w.blobs.data); n != 0 {
		t.Errorf("%d bundles of refused starts are stored", n)
	}
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, `{"code":"1",`+files+`}`, nil)
	if n := len(w.blobs.data); n != 1 {
		t.Errorf("%d bundles of an accepted start are stored", n)
	}
}

// TestRefusedStartEncodesNothing starts something that the state refuses, with a
// file that is too large for a bundle: the refusal is that of the state.
func TestRefusedStartEncodesNothing(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.StartBody = 9 << 20 })
	file := strings.Repeat("\u2028", compute.MaxDecodedBundle/6+1) // In a bundle each takes six bytes.
	body := `{"code":"1","import_files":"{\"a\":\"` + file + `\"}"`
	w.want(413, "too_large", "POST", "/execution/streaming/start", w.adaKey, body+"}")
	a := w.send("POST", "/execution/streaming/start", w.adaKey, body+`,"max_credits":"0.000001"}`)
	if a.status == 413 || a.status/100 != 4 {
		t.Errorf("answered %d %.200s", a.status, a.body)
	}
}

func TestSlowBody(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.ReadTimeout = 200 * time.Millisecond })
	a := w.raw("POST " + root + "/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
	if a.status != 408 || a.code() != "timeout" {
		t.Errorf("= %d %s", a.status, a.body)
	}
}

func TestTLS(t *testing.T) {
	w := newWorld(t)
	helper := httptest.NewTLSServer(nil)
	helper.Close()
	registry := prometheus.NewRegistry()
	cfg := w.cfg
	cfg.TLS, cfg.Registerer, cfg.Gatherer, cfg.PublicURL = helper.TLS, registry, registry, ""
	server, err := api.New(cfg)
	w.ok(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	w.url = "https://" + l.Addr().String()
	w.client = helper.Client()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "1"}, &started)
	if !strings.HasPrefix(started.StreamingURL, w.url+"/") {
		t.Errorf("streaming URL is %s, asked was %s", started.StreamingURL, w.url)
	}
	w.client.CloseIdleConnections()
	cancel()
	w.ok(<-ended)
}

func TestHeaders(t *testing.T) {
	w := newWorld(t)
	a := w.mustDo("GET", "/health/ping", "", nil, nil, "X-Request-Id", "mine-1")
	for name, want := range map[string]string{
		"X-Request-Id": "mine-1", "X-Berth-Known-Leader": "true", "X-Berth-Last-Contact": "0",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "", "Location": "",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := a.header.Get("X-Berth-Index"); got != fmt.Sprint(w.machine.View().Index()) {
		t.Errorf("X-Berth-Index is %s", got)
	}
	a = w.mustDo("GET", "/health/ping", "", nil, nil, "X-Request-Id", "<script>")
	if got := a.header.Get("X-Request-Id"); len(got) != 36 {
		t.Errorf("X-Request-Id is %q", got)
	}
	for _, path := range []string{"/execution/nothing", "/billing/history?limit=0"} {
		if a := w.send("GET", path, w.adaKey, nil); a.header.Get("X-Berth-Index") == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: headers are %v", path, a.header)
		}
	}
}

func TestPanicIsContained(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *handler.Config) {
		c.Judge = func(compute.Objective, []compute.Candidate) compute.Verdict { panic("the judge is ill") }
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	var started struct {
		ID string `json:"execution_id"`
	}
	w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey, `{"code":"1"}`, &started)
	a := w.want(500, "internal", "GET", "/execution/gpu_selection/"+started.ID, w.adaKey, nil)
	if string(a.body) != `{"detail":"Internal error.","code":"internal"}` {
		t.Errorf("body is %s", a.body)
	}
	// Nor does one that another node has handed on end this one, and the next that
	// would be asked.
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	var head edge.RelayedHead
	err := w.server.Relayed(t.Context(), edge.Relayed{
		Method: "GET", Path: "/api/v2/external/execution/gpu_selection/{id}", Params: map[string]string{"id": started.ID}, Bearer: w.adaKey,
	}, conn, func(h edge.RelayedHead) (io.Writer, error) { head = h; return io.Discard, nil })
	if err != nil || head.Status != 500 {
		t.Errorf("handed on, it is answered %d, %v", head.Status, err)
	}
	w.mustDo("GET", "/health/ping", "", nil, nil)
	w.stop()
	if !strings.Contains(log.String(), "the judge is ill") {
		t.Error("the panic is not logged")
	}
	if strings.Contains(log.String(), w.adaKey) {
		t.Error("the log holds a key")
	}
}

// lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func TestSecretsAreNotLogged(t *testing.T) {
	var log lockedBuffer // A connection that the server gave up may still log.
	w := newWorld(t, func(c *handler.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	w.raw("GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + w.adaKey + "\r\nContent-Length: x\r\n\r\n")
	w.raw("GET " + strings.Repeat("/", 9<<10) + w.adaKey + " HTTP/1.1\r\n\r\n")
	w.know(func(s *readerState) { s.noLeader = true })
	w.want(503, "", "POST", "/auth/login", "", map[string]any{"email": "a@b.c", "password": password})
	w.stop()
	if text := log.String(); strings.Contains(text, w.adaKey) || strings.Contains(text, password) || text == "" {
		t.Errorf("the log is %s", text)
	}
}

func TestErrorsInside(t *testing.T) {
	w := newWorld(t)
	w.know(func(s *readerState) { s.readErr = fmt.Errorf("disk /dev/sda1 is on fire") })
	a := w.want(500, "internal", "GET", "/billing/credits", w.adaKey, nil)
	if strings.Contains(string(a.body), "sda1") {
		t.Errorf("the answer tells too much: %s", a.body)
	}
}

// TestBuffersAreCopied sends many requests of two tenants over few connections
// and looks for the marks of one in the answers of the other.
func TestBuffersAreCopied(t *testing.T) {
	w := newWorld(t)
	type tenant struct{ key, mark string }
	tenants := []tenant{{w.adaKey, "aaaaaaaa"}, {w.bobKey, "bbbbbbbb"}}
	errs := make(chan error, len(tenants))
	for i, own := range tenants {
		other := tenants[1-i].mark
		go func() {
			var bad error
			for n := range 100 {
				body := fmt.Sprintf(`{"code":"%s%d","file_name":"%s.py","tags":["%s"]}`, own.mark, n, own.mark, own.mark)
				w.send("POST", "/execution/streaming/start", own.key, body)
				if a := w.send("GET", "/workloads/list", own.key, nil); bytes.Contains(a.body, []byte(other)) {
					bad = fmt.Errorf("%s sees %s: %s", own.mark, other, a.body)
				}
			}
			errs <- bad
		}()
	}
	for range tenants {
		w.ok(<-errs)
	}
}

// TestEndsBeforeItServes ends servers before, or just as, they begin to serve.
func TestEndsBeforeItServes(t *testing.T) {
	w := newWorld(t)
	for n := range 20 {
		cfg := w.cfg
		registry := prometheus.NewRegistry()
		cfg.Registerer, cfg.Gatherer = registry, registry
		server, err := api.New(cfg)
		w.ok(err)
		ctx, cancel := context.WithCancel(t.Context())
		if n%2 == 0 {
			cancel()
		}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(ctx, fasthttputil.NewInmemoryListener()) }()
		cancel()
		w.ok(<-ended)
	}
}
