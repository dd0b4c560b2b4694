package berth_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	berth "berth/sdk/go"
)

const (
	anID   = "0198c0de-0000-7000-8000-000000000001"
	someID = `"` + anID + `"`
)

// seen is what a fake node was asked.
type seen struct {
	mu       sync.Mutex
	requests []request
}

type request struct {
	path, key, bearer, org, body, lastEvent string
}

func (s *seen) note(r *http.Request) request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = nil
	}
	one := request{
		path: r.URL.RequestURI(), key: r.Header.Get("Idempotency-Key"), bearer: r.Header.Get("Authorization"),
		org: r.Header.Get("X-Org-Slug"), body: string(body), lastEvent: r.Header.Get("Last-Event-ID"),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, one)
	return one
}

func (s *seen) all() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// mustServe returns the URL of a fake node, and what it is asked.
func mustServe(t *testing.T, handle http.HandlerFunc) (string, *seen) {
	t.Helper()
	s := &seen{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(r)
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, s
}

// mustDead returns the URL of a node that is gone.
func mustDead(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	return server.URL
}

func mustNew(t *testing.T, cfg berth.Config) *berth.Client {
	t.Helper()
	c, err := berth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body) //nolint:errcheck // The client may be gone.
	}
}

// hangUp ends the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		cfg  berth.Config
	}{
		{"no address", berth.Config{}},
		{"no scheme", berth.Config{Addrs: []string{"127.0.0.1:6470"}}},
		{"no host", berth.Config{Addrs: []string{"http://"}}},
		{"line break in token", berth.Config{Addrs: []string{"http://a"}, Token: "a\r\nX: y"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := berth.New(tt.cfg); err == nil {
				t.Errorf("New(%+v) gave no error", tt.cfg)
			}
		})
	}
}

func TestSubmitCarriesEverything(t *testing.T) {
	url, asked := mustServe(t, answer(200, `{"execution_id":`+someID+`,"status":"queued","message":"ok"}`))
	c := mustNew(t, berth.Config{Addrs: []string{url + "/"}, Token: "lk_1", Org: "acme"})
	started, err := c.Executions.StartPython(t.Context(), berth.PythonStart{Code: "print(1)", Timeout: 5})
	if err != nil {
		t.Fatal(err)
	}
	if started.ExecutionID != anID || started.Status != berth.StatusQueued {
		t.Errorf("got %+v", started)
	}
	r := asked.all()[0]
	if r.path != "/api/v2/external/execution/streaming/start" || r.bearer != "Bearer lk_1" || r.org != "acme" {
		t.Errorf("request was %+v", r)
	}
	if len(r.key) < 16 {
		t.Errorf("Idempotency-Key is %q", r.key)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || len(body) != 2 || body["code"] != "print(1)" || body["timeout"] != 5.0 {
		t.Errorf("body is %s (%v), want code and timeout alone", r.body, err)
	}
}

// A call goes on at another address, as the same request.
func TestCallMovesOn(t *testing.T) {
	ok := answer(200, `{"execution_id":`+someID+`,"status":"queued","message":"ok"}`)
	for name, first := range map[string]http.HandlerFunc{
		"no leader":     answer(503, `{"detail":"no leader","code":"unavailable"}`),
		"hung up":       hangUp,
		"gateway":       answer(502, "<html>"),
		"rate limit":    answer(429, `{"detail":"slow down","code":"rate_limited"}`),
		"gateway is it": answer(504, ""),
		"in flight":     answer(409, `{"detail":"still in flight","code":"idempotency_in_flight"}`),
	} {
		t.Run(name, func(t *testing.T) {
			bad, badSeen := mustServe(t, first)
			good, goodSeen := mustServe(t, ok)
			c := mustNew(t, berth.Config{Addrs: []string{mustDead(t), bad, good}, Token: "lk_1"})
			for range 2 {
				if _, err := c.Executions.StartPython(t.Context(), berth.PythonStart{Code: "1"}); err != nil {
					t.Fatal(err)
				}
			}
			tried, served := badSeen.all(), goodSeen.all()
			if len(tried) != 1 || len(served) != 2 {
				t.Fatalf("the bad node was asked %d times and the good one %d times, want 1 and 2", len(tried), len(served))
			}
			if tried[0].key != served[0].key || tried[0].body != served[0].body {
				t.Errorf("the repeat %+v is not the request %+v", served[0], tried[0])
			}
			if served[0].key == served[1].key {
				t.Error("two calls had the same Idempotency-Key")
			}
		})
	}
}

// A call that is refused for a reason is not repeated.
func TestCallRefused(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		code   string
		text   string
	}{
		{"coded", 403, `{"detail":"no credits left","code":"credits_exhausted"}`, "credits_exhausted", "no credits left"},
		{"not json", 500, "oops", "", "the node answered 500 Internal Server Error"},
		{
			"validation", 422,
			`{"detail":[{"loc":["body","timeout"],"msg":"too big","type":"less_than_equal"},{"loc":["body","tags",1],"msg":"bad","type":"x"}]}`,
			"validation", "the request is not valid\n  body.timeout: too big\n  body.tags.1: bad",
		},
		{"conflict", 409, `{"detail":"another body","code":"conflict"}`, "conflict", "another body"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, asked := mustServe(t, answer(tt.status, tt.body))
			c := mustNew(t, berth.Config{Addrs: []string{url, mustDead(t)}})
			_, err := c.Executions.StartPython(t.Context(), berth.PythonStart{Code: "1"})
			e, ok := errors.AsType[*berth.Error](err)
			if !ok || e.Status != tt.status || berth.CodeOf(err) != tt.code || e.Error() != tt.text {
				t.Errorf("got %#v, want status %d, code %q, text %q", err, tt.status, tt.code, tt.text)
			}
			if n := len(asked.all()); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
		})
	}
}

// A refresh token that is seen twice ends its family, so it is not sent again
// once a node may have it; to a node that is gone it never was sent.
func TestRefreshIsSentOnce(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"hung up":   hangUp,
		"no leader": answer(503, `{"detail":"no leader"}`),
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := mustServe(t, handle)
			c := mustNew(t, berth.Config{Addrs: []string{mustDead(t), url}})
			if _, err := c.Sessions.Refresh(t.Context(), berth.RefreshBody{RefreshToken: "r"}); err == nil {
				t.Error("no error")
			}
			if all := asked.all(); len(all) != 1 || all[0].key != "" {
				t.Errorf("asked %+v, want once and without key", all)
			}
		})
	}
}

// fakeWire answers requests without a network, for tests in fake time.
type fakeWire func(r *http.Request) (*http.Response, error)

func (f fakeWire) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCallGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		transport := fakeWire(func(*http.Request) (*http.Response, error) {
			tries++
			return &http.Response{
				StatusCode: 503, Header: http.Header{"Retry-After": {"1"}},
				Body: io.NopCloser(strings.NewReader(`{"detail":"no leader","code":"unavailable"}`)),
			}, nil
		})
		began := time.Now()
		c := mustNew(t, berth.Config{
			Addrs: []string{"http://a", "http://b"}, HTTP: &http.Client{Transport: transport}, RetryFor: 10 * time.Second,
		})
		_, err := c.Workloads.ListWorkloads(t.Context(), berth.WorkloadsQuery{})
		took := time.Since(began)
		if berth.CodeOf(err) != "unavailable" || took > 10*time.Second || took < 8*time.Second {
			t.Errorf("gave up after %s with %v, want unavailable after about 10 s", took, err)
		}
		if tries < 10 || tries > 22 {
			t.Errorf("tried %d times, want each address about once a second", tries)
		}

		tries = 0
		once := mustNew(t, berth.Config{
			Addrs: []string{"http://a", "http://b"}, HTTP: &http.Client{Transport: transport}, RetryFor: -1,
		})
		if _, err := once.Workloads.ListWorkloads(t.Context(), berth.WorkloadsQuery{}); err == nil || tries != 2 {
			t.Errorf("tried %d times (%v), want each address once", tries, err)
		}
	})
}

func TestWaitWaits(t *testing.T) {
	statuses := []string{"queued", "running", "completed"}
	var calls int
	url, asked := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		answer(200, `{"execution_id":`+someID+`,"status":"`+statuses[min(calls, 2)]+`","created_at":"2026-01-02T03:04:05.678Z","return_code":0}`)(w, r)
		calls++
	})
	c := mustNew(t, berth.Config{Addrs: []string{url}})
	e, err := c.Wait(t.Context(), anID)
	if err != nil || e.Status != berth.StatusCompleted || e.CreatedAt.Format(time.RFC3339Nano) != "2026-01-02T03:04:05.678Z" {
		t.Errorf("got %+v, %v", e, err)
	}
	if all := asked.all(); len(all) != 3 || !strings.HasSuffix(all[0].path, "?until=end&wait=30s") {
		t.Errorf("asked %+v", all)
	}
}
