package openai

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// requestTo returns a request to an engine that is a handler.
func requestTo(t *testing.T, handle http.HandlerFunc) *http.Request {
	t.Helper()
	engine := httptest.NewServer(handle)
	t.Cleanup(engine.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, engine.URL+"/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestSilentEngine asks engines that send nothing, or nothing after the first event: the
// request ends with engine_timeout, and the engine's work is cancelled.
func TestSilentEngine(t *testing.T) {
	for _, first := range []string{"", "data: {\"choices\":[]}\n\n"} {
		left := make(chan struct{})
		req := requestTo(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body) // Else the server does not see that the client is gone.
			if first != "" {
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			close(left)
		})
		answer, err := InTime(req, 100*time.Millisecond, new(http.Transport).RoundTrip) //nolint:bodyclose // The stream is closed below.
		if first == "" {
			if !IsTimeout(err) {
				t.Errorf("an engine that never answers: %v", err)
			}
		} else if err != nil {
			t.Fatal(err)
		} else {
			stream := newEventBody(answer.Body)
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
	req := requestTo(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a\n")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "b\n")
	})
	answer, err := InTime(req, limit, new(http.Transport).RoundTrip)
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
