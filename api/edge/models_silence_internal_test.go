package edge

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
)

// engineModels has one engine answer.
type engineModels struct {
	Models
	at string
}

func (m *engineModels) Infer(
	_ *fsm.View, _ *compute.Execution, req *http.Request, body []byte, _ uint64, _ *int,
) (*http.Response, error) {
	to := req.Clone(req.Context())
	to.URL.Host, to.Body = m.at, io.NopCloser(strings.NewReader(string(body)))
	return new(http.Transport).RoundTrip(to)
}

// callOf returns a call whose engine is a handler.
func callOf(t *testing.T, limit time.Duration, handle http.HandlerFunc) (*modelCall, *http.Request) {
	t.Helper()
	engine := httptest.NewServer(handle)
	t.Cleanup(engine.Close)
	s := &Server{Core: &Core{}}
	s.cfg.Models = &engineModels{at: engine.Listener.Addr().String()}
	s.cfg.ModelLimits.AnswerWait = limit
	c := &modelCall{serviceCall: serviceCall{Server: s, r: &Request{}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, req
}

// TestSilentEngine asks engines that send nothing, or nothing after the first event: the
// request ends with engine_timeout, and the engine's work is cancelled.
func TestSilentEngine(t *testing.T) {
	for _, first := range []string{"", "data: {\"choices\":[]}\n\n"} {
		left := make(chan struct{})
		c, req := callOf(t, 100*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body) // Else the server does not see that the client is gone.
			if first != "" {
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			close(left)
		})
		answer, err := c.inferInTime(req, nil) //nolint:bodyclose // The stream is closed below.
		if first == "" {
			if !isEngineTimeout(err) {
				t.Errorf("an engine that never answers: %v", err)
			}
			if tries := 0; c.retries(t.Context(), err, &tries) {
				t.Error("it is asked again")
			}
		} else if err != nil {
			t.Fatal(err)
		} else {
			stream := &eventBody{from: answer.Body}
			text, err := io.ReadAll(stream)
			if err != nil || string(text) != first+silentStream {
				t.Errorf("a silent stream: %q, %v", text, err)
			}
			stream.Close()
		}
		<-left
	}
}

// TestSlowClientIsNotSilence reads a stream after a pause longer than the limit.
func TestSlowClientIsNotSilence(t *testing.T) {
	const limit = 200 * time.Millisecond
	read := make(chan struct{})
	c, req := callOf(t, limit, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a\n")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "b\n")
	})
	answer, err := c.inferInTime(req, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	pause, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	<-pause.Done()
	close(read)
	r := bufio.NewReader(answer.Body)
	for _, want := range []string{"a\n", "b\n"} {
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}
