package api_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// TestHeadAndOptions asks every route that reads with HEAD and OPTIONS: HEAD answers the
// status and the length of GET without a body, OPTIONS the methods.
func TestHeadAndOptions(t *testing.T) {
	m := newMatrix(t)
	_, worker := m.newWorker()
	asked := 0
	for _, rt := range api.Routes() {
		if rt.Method != http.MethodGet {
			continue
		}
		own := map[string]string(nil)
		if strings.Contains(rt.Path, "{") {
			own, _ = m.object(rt)
		}
		for _, node := range []*world{m.world, worker} {
			asked++
			bearer := m.cydKey
			if rt.Need == edge.NeedOperator {
				bearer = rootToken
			}
			_, query := m.sample(rt)
			path := rt.Path
			for name, value := range own {
				path = strings.ReplaceAll(path, name, value)
			}
			if path += "?" + query; rt.Need == edge.NeedStream {
				continue // It does not end.
			}
			get := node.fetch(http.MethodGet, path, bearer, nil, nil)
			head := node.fetch(http.MethodHead, path, bearer, nil, nil)
			if head.status != get.status || len(head.body) > 0 || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
				t.Errorf("HEAD %s: %d with %d bytes of %q, GET is %d of %q", path, head.status, len(head.body),
					head.header.Get("Content-Type"), get.status, get.header.Get("Content-Type"))
			}
			options := node.fetch(http.MethodOptions, path, "", nil, nil)
			if allow := options.header.Get("Allow"); options.status != 200 || !strings.Contains(allow, "GET, HEAD, OPTIONS") {
				t.Errorf("OPTIONS %s: %d, %q", path, options.status, allow)
			}
		}
	}
	if asked < 120 {
		t.Errorf("only %d routes were asked", asked)
	}
	models := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil)
	for _, at := range []string{edge.ModelRoot, root + "/serverless"} {
		for path, want := range map[string]string{
			"/models": "GET, HEAD, OPTIONS", "/models/" + models.id.String(): "GET, HEAD, OPTIONS",
			"/chat/completions": "OPTIONS, POST", "/completions": "OPTIONS, POST", "/embeddings": "OPTIONS, POST",
		} {
			options := models.fetch(http.MethodOptions, at+path, "", nil, nil)
			if allow := options.header.Get("Allow"); options.status != 200 || allow != want {
				t.Errorf("OPTIONS %s: %d, %q", at+path, options.status, allow)
			}
			get := models.fetch(http.MethodGet, at+path, models.adaKey, nil, nil)
			head := models.fetch(http.MethodHead, at+path, models.adaKey, nil, nil)
			if ok := strings.HasPrefix(want, "GET"); (get.status == 200) != ok || head.status != get.status || len(head.body) > 0 {
				t.Errorf("GET %s is %d, HEAD %d with %d bytes", at+path, get.status, head.status, len(head.body))
			}
		}
		if a := models.fetch(http.MethodOptions, at+"/nothing", models.adaKey, nil, nil); a.status != 404 {
			t.Errorf("OPTIONS of a path that there is not: %d", a.status)
		}
	}
}

// TestHosts serves the configured names only, and probes under any.
func TestHosts(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Front.Hosts = []string{"gpu-1.lab", "::1"} })
	for host, want := range map[string]int{
		"gpu-1.lab": 200, "GPU-1.lab:6470": 200, "[::1]:6470": 200, "berth.test": 200, "evil.example": 400, "gpu-1.lab.evil": 400, "127.0.0.1": 400,
	} {
		for path, want := range map[string]int{"/api/v2/external/health/ping": want, "/livez": 200} {
			if got := w.statusOf("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); got != want {
				t.Errorf("%s at %s: %d, want %d", path, host, got, want)
			}
		}
	}
}

// statusOf sends bytes and returns the status of the answer.
func (w *world) statusOf(request string) int {
	w.Helper()
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	w.ok(err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	w.ok(err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestCORS lets pages of the configured origins call the API, and no others.
func TestCORS(t *testing.T) {
	const page = "https://lab.example"
	preflight := []string{"Origin", page, "Access-Control-Request-Method", "POST"}
	off := newWorld(t)
	on := newWorld(t, func(c *handler.Config) { c.Front.Origins = []string{page} })
	path := root + "/execution/streaming/start"
	if got := off.fetch("OPTIONS", path, "", nil, preflight); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by default: %v", got.header)
	}
	got := on.fetch("OPTIONS", path, "", nil, preflight)
	if got.status != 200 || got.header.Get("Access-Control-Allow-Origin") != page ||
		!strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("the configured origin: %d %v", got.status, got.header)
	}
	for origin, want := range map[string]string{page: page, "https://evil.example": "", page + ".evil": ""} {
		got := on.fetch("GET", root+"/user/status", on.bobKey, nil, []string{"Origin", origin})
		if got.status != 200 || got.header.Get("Access-Control-Allow-Origin") != want || got.header.Get("Vary") == "" {
			t.Errorf("a request of %s: %d %v", origin, got.status, got.header)
		}
		if got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("pages may send cookies")
		}
	}
	models := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(w, "{}")
	}, func(c *handler.Config) { c.Front.Origins = []string{page} })
	from := []string{"Origin", page}
	body := []byte(`{"model":"` + models.id.String() + `"}`)
	for name, got := range map[string]answer{
		"an answer": models.fetch("POST", edge.ModelRoot+"/completions", models.adaKey, body, from),
		"the list":  models.fetch("GET", edge.ModelRoot+"/models", models.adaKey, nil, from),
		"a refusal": models.fetch("GET", edge.ModelRoot+"/models", "", nil, from),
	} {
		if origin := got.header.Get("Access-Control-Allow-Origin"); origin != page || got.header.Get("Vary") == "" {
			t.Errorf("%s of models: %d for %q", name, got.status, origin)
		}
	}
}

// TestCORSOfModelClients asks as a browser does for OpenAI's client: each of its headers may be
// sent to models, and nowhere else. Names of no such family are not repeated.
func TestCORSOfModelClients(t *testing.T) {
	const page = "https://lab.example"
	w := newWorld(t, func(c *handler.Config) { c.Front.Origins = []string{page} })
	own := []string{
		"x-stainless-arch", "x-stainless-lang", "x-stainless-os", "x-stainless-package-version", "x-stainless-retry-count",
		"x-stainless-runtime", "x-stainless-runtime-version", "X-Stainless-Timeout", "openai-organization", "openai-project",
	}
	others := []string{"cookie", "x-forwarded-for", "x-stainless-", "x-stainless-a b", "x-berth-worker", "xx-stainless-arch", "*"}
	asked := strings.Join(append(append([]string{"authorization", "content-type"}, own...), others...), ", ")
	for path, open := range map[string]bool{
		edge.ModelRoot + "/chat/completions": true, root + "/serverless/models": true, root + "/execution/streaming/start": false,
	} {
		got := w.fetch("OPTIONS", path, "", nil, []string{
			"Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", asked,
		})
		allowed := strings.Split(got.header.Get("Access-Control-Allow-Headers"), ", ")
		for _, name := range own {
			if slices.Contains(allowed, name) != open {
				t.Errorf("%s: whether %s may be sent: %t, want %t", path, name, !open, open)
			}
		}
		for _, name := range others {
			if slices.Contains(allowed, name) {
				t.Errorf("%s: %q may be sent", path, name)
			}
		}
		if got.status != http.StatusOK || !slices.Contains(allowed, "Authorization") {
			t.Errorf("%s: %d %v", path, got.status, allowed)
		}
		if got = w.fetch("OPTIONS", path, "", nil, []string{
			"Origin", "https://evil.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", asked,
		}); got.header.Get("Access-Control-Allow-Headers") != "" {
			t.Errorf("%s: another origin: %v", path, got.header)
		}
	}
}

// TestSecurityHeaders holds the headers of every answer, refusals included.
func TestSecurityHeaders(t *testing.T) {
	w := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil)
	for _, path := range []string{
		"/user/status", "/nothing", "/admin/nodes", edge.ModelRoot + "/models", edge.ModelRoot + "/completions", "/serverless/models",
	} {
		h := w.send("GET", path, w.bobKey, nil).header
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: the policy is %q", path, h.Get("Content-Security-Policy"))
		}
	}
}

// TestGzip compresses large answers for clients that ask, and leaves out small ones.
func TestGzip(t *testing.T) {
	w := newWorld(t)
	plain := w.fetch("GET", "/openapi.json", "", nil, []string{"Accept-Encoding", "identity"})
	packed := w.fetch("GET", "/openapi.json", "", nil, []string{"Accept-Encoding", "gzip"})
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body)*3 > len(plain.body) {
		t.Fatalf("%d bytes with %q, plain %d", len(packed.body), packed.header.Get("Content-Encoding"), len(plain.body))
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed.body))
	w.ok(err)
	text, err := io.ReadAll(reader)
	w.ok(err)
	if !bytes.Equal(text, plain.body) || plain.header.Get("Vary") == "" {
		t.Error("it is another document")
	}
	for _, path := range []string{"/workloads/list", "/execution/" + w.loud().String()} { // A list in pieces, and a held answer.
		plain := w.fetch("GET", root+path, w.adaKey, nil, []string{"Accept-Encoding", "identity"})
		packed := w.fetch("GET", root+path, w.adaKey, nil, []string{"Accept-Encoding", "gzip"})
		reader, err := gzip.NewReader(bytes.NewReader(packed.body))
		w.ok(err)
		text, err := io.ReadAll(reader)
		w.ok(err)
		if !bytes.Equal(text, plain.body) || len(text) < 64<<10 || len(packed.body)*5 > len(text) || plain.header.Get("Vary") == "" {
			t.Errorf("%s: %d bytes, unpacked %d, plain %d", path, len(packed.body), len(text), len(plain.body))
		}
	}
	small := w.fetch("GET", root+"/health/ping", "", nil, []string{"Accept-Encoding", "gzip"})
	if small.header.Get("Content-Encoding") != "" {
		t.Error("a small answer is compressed")
	}
}

// loud returns an execution with much output, beside a hundred that have not ended.
func (w *world) loud() compute.ExecutionID {
	w.Helper()
	for range 100 {
		w.start("cpu")
	}
	id := w.start("cpu")
	w.place(id, 1)
	w.begun(id)
	w.logs.write(id, handler.Line{Seq: 1, Stream: "stdout", Text: bytes.Repeat([]byte("loud "), 14<<10)})
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	w.logs.finish(id)
	return id
}

// TestStreamsAreCompressed reads a stream as gzip, event by event: each is there before the next one.
func TestStreamsAreCompressed(t *testing.T) {
	w := newWorld(t)
	started := w.startStream()
	id := started.ExecutionID
	w.place(id, 1)
	w.begun(id)
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.url+streamPath(started), nil)
	w.ok(err)
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := w.client.Do(req)
	w.ok(err)
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("the stream is %q", resp.Header.Get("Content-Encoding"))
	}
	w.logs.write(id, handler.Line{Seq: 1, Stream: "stdout", Text: []byte("one")})
	unpacked, err := gzip.NewReader(resp.Body)
	w.ok(err)
	events := bufio.NewReader(unpacked)
	read := func(want string) {
		t.Helper()
		for {
			line, err := events.ReadString('\n')
			w.ok(err)
			if strings.Contains(line, want) {
				return
			}
		}
	}
	read("one")
	for seq := uint64(2); seq < 2000; seq++ {
		w.logs.write(id, handler.Line{Seq: seq, Stream: "stdout", Text: fmt.Appendf(nil, `{"level":"info","n":%d}`, seq)})
	}
	read(`\"n\":1999`)
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	w.logs.finish(id)
	read("jobFinished")
	if _, err := io.Copy(io.Discard, events); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestOrganizationRate limits an organization over its keys.
func TestOrganizationRate(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.OrgRate, c.Limits.OrgBurst = 1, 20 })
	var made wire.MintedKey
	w.mustDo("POST", "/orgs/bob-lab/api-keys", w.bobKey, map[string]any{"name": "second"}, &made)
	refused := 0
	for i := range 40 {
		key := []string{w.bobKey, made.PlaintextKey}[i%2]
		if got := w.send("GET", "/user/status", key, nil); got.status == http.StatusTooManyRequests {
			if refused++; got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	if refused < 15 {
		t.Errorf("%d of 40 requests are refused", refused)
	}
	if got := w.send("GET", "/user/status", w.adaKey, nil); got.status != 200 {
		t.Errorf("another organization: %d", got.status)
	}
}

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestAccessLog logs each request with its identifier and without its secrets, where the
// operator asks for that.
func TestAccessLog(t *testing.T) {
	for _, on := range []bool{false, true} {
		log := new(lines)
		w := newWorld(t, func(c *handler.Config) {
			c.Front.AccessLog, c.Logger = on, slog.New(slog.NewTextHandler(log, nil))
		})
		w.fetch("GET", root+"/user/status?token=hidden", w.bobKey, nil, []string{"X-Request-Id", "req-7"})
		text := log.String()
		said := strings.Contains(text, "request=req-7") && strings.Contains(text, "route="+root+"/user/status")
		if said != on || strings.Contains(text, w.bobKey) || strings.Contains(text, "hidden") {
			t.Errorf("access log %t:\n%s", on, text)
		}
	}
}
