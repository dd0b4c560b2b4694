package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
)

// engineModels has an HTTP server answer requests to models.
type engineModels struct {
	at      string
	unready atomic.Bool

	lose func() (unsent bool) // Has a replica end instead of answering; nil for none.
	sent atomic.Int64         // Requests that replicas lost.
}

func (m *engineModels) Ready(*fsm.View, *compute.Execution) bool { return !m.unready.Load() }

func (m *engineModels) Count(compute.ExecutionID, func() time.Time) (answered, done func()) {
	return func() {}, func() {}
}

func (m *engineModels) Admit(
	context.Context, *fsm.View, *compute.Execution, compute.OrgID, int64,
) (func(int64), error) {
	return func(int64) {}, nil
}

func (m *engineModels) Infer(
	_ *fsm.View, _ *compute.Execution, req *http.Request, body []byte, _ uint64, failed *int,
) (*http.Response, error) {
	if m.lose != nil {
		if !m.lose() {
			m.sent.Add(1)
			*failed++
		}
		return nil, compute.Errorf(compute.CodeUnavailable, "No replica answered.").Named("replica_failed")
	}
	to := req.Clone(req.Context())
	to.URL.Host, to.Body, to.ContentLength = m.at, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer, err := new(http.Transport).RoundTrip(to)
	if err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The engine failed: %w", err).Named("replica_failed")
	}
	return answer, nil
}

// modelWorld is a world with a deployment of ada's, which an engine answers.
type modelWorld struct {
	*world

	models *engineModels
	id     compute.ExecutionID
}

func newModelWorld(
	t *testing.T, limits edge.ModelLimits, engine http.HandlerFunc, change ...func(*handler.Config),
) *modelWorld {
	t.Helper()
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	m := &modelWorld{models: &engineModels{at: server.Listener.Addr().String()}}
	m.world = newWorld(t, func(c *handler.Config) {
		c.Models, c.ModelLimits = m.models, limits
		c.Stopwatch = time.Now
		for _, f := range change {
			f(c)
		}
	})
	m.upgrade()
	m.id = m.deploy()
	return m
}

// ask asks the deployment with more fields of the body.
func (m *modelWorld) ask(more string) answer {
	return m.send("POST", edge.ModelRoot+"/chat/completions", m.adaKey, fmt.Sprintf(`{"model":"%s"%s}`, m.id, more))
}

// modelCode returns the code of an error of the OpenAI API.
func modelCode(a answer) string {
	var e struct {
		Error struct{ Code, Type, Message string }
	}
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		return "no envelope: " + string(a.body)
	}
	return e.Error.Code
}

// TestModelAnswersPassThrough holds that what an engine answers reaches the client byte for
// byte, garbage and errors included.
func TestModelAnswersPassThrough(t *testing.T) {
	type reply struct {
		status     int
		kind, body string
	}
	replies := map[string]reply{
		"whole":         {200, "application/json", "{ \"odd\" :\t1.0e3, \"text\":\"\\u00e4ä\" }\n\n"},
		"stream":        {200, "text/event-stream; charset=utf-8", ": comment\r\n\r\nevent: x\ndata: {\"a\": 1}\n\n\n\ndata: [DONE]\n\n"},
		"no JSON":       {200, "application/json", "<html>\x00\xff\xfe"},
		"broken events": {200, "text/event-stream", "data: {\"choices\":\n\ndata\n\n\x00\xff"},
		"empty":         {200, "application/json", ""},
		"no type":       {200, "", "x"},
		"refusal":       {400, "application/json", `{"error":{"message":"m","type":"t","param":null,"code":"c"}}`},
		"too many":      {429, "application/json", `{"error":{}}`},
		"failure":       {500, "text/plain", "Traceback"},
		"teapot":        {418, "text/plain", "x"},
	}
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("Accept")
		got := replies[name]
		w.Header()["Content-Type"] = []string{got.kind}
		w.Header().Set("Server", "engine/1")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(got.status)
		_, _ = io.WriteString(w, got.body)
	})
	for name, want := range replies {
		body := fmt.Sprintf(`{"model":"%s"}`, m.id)
		a := m.send("POST", edge.ModelRoot+"/completions", m.adaKey, body, "Accept", name)
		if a.status != want.status || string(a.body) != want.body || a.header.Get("Content-Type") != want.kind {
			t.Errorf("%s: %d %q %q", name, a.status, a.header.Get("Content-Type"), a.body)
		}
		if a.header.Get("Set-Cookie") != "" || strings.Contains(a.header.Get("Server"), "engine") || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: the headers are %v", name, a.header)
		}
	}
}

// TestModelPrompts holds that a prompt of 10 MB reaches the engine byte for byte, and that
// one of more than 16 MiB is refused.
func TestModelPrompts(t *testing.T) {
	var got []byte
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(_ http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
	})
	text := strings.Repeat("ä \\n", 2_000_000)
	body := fmt.Sprintf(`{"model":"%s","stream":false,"prompt":"%s"}`, m.id, text)
	if a := m.send("POST", edge.ModelRoot+"/completions", m.adaKey, body); a.status != 200 || string(got) != body {
		t.Errorf("%d %.300s: the engine got %d bytes of %d", a.status, a.body, len(got), len(body))
	}
	got = nil
	conn, err := m.dial()
	m.ok(err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s/completions HTTP/1.1\r\nHost: berth.test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		edge.ModelRoot, m.adaKey, 16<<20+1)
	m.ok(err)
	go func() { _, _ = conn.Write(make([]byte, 16<<20+1)) }() // The server may close the connection before its end.
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	m.ok(err)
	defer reply.Body.Close()
	refusal, err := io.ReadAll(reply.Body)
	m.ok(err)
	if a := (answer{reply.StatusCode, reply.Header, refusal}); a.status != 413 || modelCode(a) != "context_length_exceeded" || got != nil {
		t.Errorf("more than 16 MiB: %d %.300s", a.status, a.body)
	}
}

// TestEnginesRetryAfter passes on when a busy engine wants a request again, if that is a
// number of seconds.
func TestEnginesRetryAfter(t *testing.T) {
	var status int
	var after string
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(status)
	})
	for _, test := range []struct {
		status      int
		after, want string
	}{
		{429, "7", "7"},
		{503, "120", "120"},
		{503, "0", "0"},
		{503, "Wed, 21 Oct 2026 07:28:00 GMT", ""},
		{429, "-1", ""},
		{429, "1e3", ""},
		{503, "99999999999", ""},
		{503, "", ""},
		{200, "7", ""},
		{500, "7", ""},
	} {
		status, after = test.status, test.after
		if a := m.ask(""); a.status != test.status || a.header.Get("Retry-After") != test.want {
			t.Errorf("%d with %q: %d with %q, want %q", test.status, test.after, a.status, a.header.Get("Retry-After"), test.want)
		}
	}
}

// TestTrickledPrompt sends a prompt a byte at a time: it is refused although no byte comes late.
func TestTrickledPrompt(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(http.ResponseWriter, *http.Request) {
		t.Error("the engine was asked")
	}, func(c *handler.Config) { c.Limits.ReadTimeout = 300 * time.Millisecond })
	conn, err := m.dial()
	m.ok(err)
	defer conn.Close()
	const all = 16 << 10
	_, err = fmt.Fprintf(conn, "POST %s/completions HTTP/1.1\r\nHost: berth.test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		edge.ModelRoot, m.adaKey, all)
	m.ok(err)
	_, err = conn.Write(make([]byte, all-1000)) // More than is read before the credential is checked.
	m.ok(err)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 1000 {
			<-tick.C
			if _, err := conn.Write([]byte{' '}); err != nil {
				return
			}
		}
	}()
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	m.ok(err)
	defer reply.Body.Close()
	refusal, err := io.ReadAll(reply.Body)
	m.ok(err)
	if a := (answer{reply.StatusCode, reply.Header, refusal}); a.status != 408 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestModelLimits refuses requests beyond the limit of a key, and beyond that of an
// organization, and says what is left. Others are not affected.
func TestModelLimits(t *testing.T) {
	entered, release := make(chan bool, 1), make(chan bool)
	m := newModelWorld(t, edge.ModelLimits{PerMinute: 3, InFlight: 1}, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "wait" {
			entered <- true
			<-release
		}
	})
	var held sync.WaitGroup
	held.Go(func() {
		body := fmt.Sprintf(`{"model":"%s"}`, m.id)
		if a := m.send("POST", edge.ModelRoot+"/completions", m.adaKey, body, "Accept", "wait"); a.status != 200 ||
			a.header.Get("X-Ratelimit-Limit-Requests") != "3" || a.header.Get("X-Ratelimit-Remaining-Requests") != "2" {
			t.Errorf("the first request: %d %s, headers %v", a.status, a.body, a.header)
		}
	})
	<-entered
	a := m.ask("")
	if a.status != 429 || modelCode(a) != "rate_limit_exceeded" || a.header.Get("Retry-After") == "" ||
		a.header.Get("X-Ratelimit-Limit-In-Flight") != "1" || a.header.Get("X-Ratelimit-Remaining-In-Flight") != "0" {
		t.Errorf("beyond the limit of the organization: %d %s, headers %v", a.status, a.body, a.header)
	}
	close(release)
	held.Wait()
	m.eventually("the first request to be over", func() bool { return m.gauge("berth_inference_requests_running") == 0 })
	if a := m.ask(""); a.status != 200 || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" ||
		a.header.Get("X-Ratelimit-Remaining-In-Flight") != "0" {
		t.Errorf("the third request: %d %s, headers %v", a.status, a.body, a.header)
	}
	a = m.ask("")
	if a.status != 429 || modelCode(a) != "rate_limit_exceeded" || a.header.Get("Retry-After") != "20" ||
		a.header.Get("X-Ratelimit-Remaining-Requests") != "0" || a.header.Get("X-Ratelimit-Reset-Requests") != "20s" {
		t.Errorf("beyond the limit of the key: %d %s, headers %v", a.status, a.body, a.header)
	}
	if a := m.send("GET", edge.ModelRoot+"/models", m.bobKey, nil); a.status != 200 {
		t.Errorf("of another key: %d %s", a.status, a.body)
	}
	m.pass(20 * time.Second)
	if a := m.ask(""); a.status != 200 {
		t.Errorf("when one more is allowed: %d %s", a.status, a.body)
	}
}

// TestModelWaits answers 503 with Retry-After while a model starts, and 504 when its engine
// says nothing. The engine's work is cancelled.
func TestModelWaits(t *testing.T) {
	left := make(chan bool, 1)
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8, ResumeWait: time.Second, AnswerWait: 200 * time.Millisecond},
		func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			left <- true
		})
	if a := m.ask(""); a.status != 504 || modelCode(a) != "engine_timeout" || a.header.Get("Retry-After") != "" {
		t.Errorf("an engine that never answers: %d %s, headers %v", a.status, a.body, a.header)
	}
	<-left
	m.models.unready.Store(true)
	if a := m.ask(""); a.status != 503 || modelCode(a) != "model_starting" || a.header.Get("Retry-After") != "5" {
		t.Errorf("a model that starts: %d %s, headers %v", a.status, a.body, a.header)
	}
}

// TestModelThatEndsItsEngines sends a request on which engines end to two replicas at most,
// whatever becomes ready later. The wait for the second one is short.
func TestModelThatEndsItsEngines(t *testing.T) {
	var late, step atomic.Int64 // How far the stopwatch is ahead, and by how much more when it is read.
	m := &modelWorld{models: new(engineModels)}
	m.world = newWorld(t, func(c *handler.Config) {
		c.Models, c.ModelLimits = m.models, edge.ModelLimits{InFlight: 8, ResumeWait: time.Hour}
		c.Stopwatch = func() time.Time { return time.Now().Add(time.Duration(late.Add(step.Load()))) }
	})
	m.upgrade()
	m.id = m.deploy()
	calls := 0
	for _, test := range []struct {
		name string
		lose func() (unsent bool)
		sent int64
	}{
		{"all end", func() bool { return false }, 2},
		{"some accept no connection", func() bool { calls++; return calls%3 != 1 }, 2},
		{"there is no other", func() bool {
			m.models.unready.Store(true)
			step.Store(int64(3 * time.Second))
			return false
		}, 1},
	} {
		m.models.lose = test.lose
		m.models.unready.Store(false)
		m.models.sent.Store(0)
		a := m.ask("")
		if sent := m.models.sent.Load(); a.status != 503 || modelCode(a) != "replica_lost" || a.header.Get("Retry-After") == "" ||
			sent != test.sent {
			t.Errorf("%s: %d %s, sent %d times", test.name, a.status, a.body, sent)
		}
	}
}

// TestSlowModelClients holds that a client that does not read stops the engine's stream:
// no node keeps what the engine would send.
func TestSlowModelClients(t *testing.T) {
	const event, most = 64 << 10, 64 << 20
	var sent atomic.Int64
	blocked := make(chan bool)
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell := sync.OnceFunc(func() { close(blocked) })
		defer tell()
		stuck := time.AfterFunc(time.Second, tell)
		for text := "data: " + strings.Repeat("x", event-8) + "\n\n"; sent.Load() < most; {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			sent.Add(int64(len(text)))
			stuck.Reset(time.Second)
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+edge.ModelRoot+"/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model":"%s","stream":true}`, m.id)))
	m.ok(err)
	req.Header.Set("Authorization", "Bearer "+m.adaKey)
	answer, err := m.client.Do(req)
	m.ok(err)
	defer answer.Body.Close()
	<-blocked // A write has been blocked for a second.
	if got := sent.Load(); got >= most {
		t.Errorf("the engine sent all of its %d bytes to a client that reads nothing", got)
	}
	n, err := io.Copy(io.Discard, answer.Body)
	if err != nil || n != most {
		t.Errorf("in the end the client got %d bytes, %v", n, err)
	}
}

// TestFirstEventComesWithTheHeader holds that a node writes the header of a stream and its
// first event at once: each write costs a system call, and wakes the client.
func TestFirstEventComesWithTheHeader(t *testing.T) {
	const event = "data: {}\n\n"
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event)
	})
	near, far := net.Pipe() // One read of it returns one write.
	defer near.Close()
	go func() {
		_ = m.server.ServeServices(far)
		far.Close()
	}()
	body := fmt.Sprintf(`{"model":"%s","stream":true}`, m.id)
	_, err := fmt.Fprintf(near, "POST %s/completions HTTP/1.1\r\nHost: berth.test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		edge.ModelRoot, m.adaKey, len(body), body)
	m.ok(err)
	first := make([]byte, 64<<10)
	n, err := near.Read(first)
	if err != nil || !strings.Contains(string(first[:n]), "\r\n\r\n") || !strings.Contains(string(first[:n]), event) {
		t.Errorf("at first the client gets %q, %v", first[:n], err)
	}
}
