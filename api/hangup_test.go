package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
)

// heldService answers requests to services once their body has come and their client has
// left.
type heldService struct{ entered, left chan bool }

func (h heldService) RoundTrip(_ *fsm.View, _ *compute.Execution, req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	h.entered <- true
	<-req.Context().Done()
	close(h.left)
	return nil, req.Context().Err()
}

// leave sends a request with a body, whose client leaves once it was let in.
func (w *world) leave(path, body string, entered <-chan bool) {
	w.Helper()
	ctx, leave := context.WithCancel(w.Context())
	defer leave()
	go func() {
		<-entered
		leave()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	w.ok(err)
	req.Header.Set("Authorization", "Bearer "+w.adaKey)
	if answer, err := w.client.Do(req); err == nil {
		answer.Body.Close()
		w.Errorf("a client that left gets %d", answer.StatusCode)
	}
}

// leaveStream begins a stream at a node, and leaves it when the engine sends no more.
func (m *modelWorld) leaveStream(node *world, body string, entered <-chan bool) {
	m.Helper()
	req, err := http.NewRequestWithContext(m.Context(), http.MethodPost, node.url+edge.ModelRoot+"/chat/completions",
		strings.NewReader(body))
	m.ok(err)
	req.Header.Set("Authorization", "Bearer "+m.adaKey)
	req.Header.Set("Accept", "endless stream")
	answer, err := node.client.Do(req)
	m.ok(err)
	<-entered
	m.ok(answer.Body.Close())
}

// TestClientsLeaveBehindAWorker has the client of a whole answer leave, and that of a stream
// while the engine sends nothing: the engine's work is cancelled, also if a worker got the
// request. Other requests keep their connection.
func TestClientsLeaveBehindAWorker(t *testing.T) {
	entered, left := make(chan bool), make(chan bool)
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		accept := r.Header.Get("Accept")
		if strings.Contains(accept, "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		if accept != "" || err != nil {
			_, _ = io.WriteString(w, "answer\n")
			_ = http.NewResponseController(w).Flush()
		}
		if accept != "endless stream" && accept != "" || err != nil {
			return
		}
		entered <- true
		<-r.Context().Done()
		left <- true
	})
	_, worker := m.newWorker()
	worker.adaKey = m.adaKey
	for name, node := range map[string]*world{"server": m.world, "worker": worker} {
		t.Run(name, func(t *testing.T) {
			body := fmt.Sprintf(`{"model":"%s","messages":[]}`, m.id)
			node.leave(edge.ModelRoot+"/chat/completions", body, entered)
			<-left
			m.eventually("end of the request", func() bool { return m.gauge("berth_inference_requests_running") == 0 })
			m.leaveStream(node, body, entered)
			<-left
			m.eventually("end of the stream", func() bool { return m.gauge("berth_inference_requests_running") == 0 })
			for _, kind := range []string{"whole", "stream", "whole", "stream"} {
				a := node.send("POST", edge.ModelRoot+"/chat/completions", m.adaKey, body, "Accept", kind)
				if a.status != 200 || string(a.body) != "answer\n" || a.header.Get("Connection") == "close" {
					t.Errorf("a client that waits gets %d %q, headers %v", a.status, a.body, a.header)
				}
			}
		})
	}
}

// TestClientsOfServicesLeave cancels a request with a body whose client has left.
func TestClientsOfServicesLeave(t *testing.T) {
	held := heldService{make(chan bool), make(chan bool)}
	w := newWorld(t, func(c *handler.Config) { c.Services = held })
	w.upgrade()
	w.leave(fmt.Sprintf("%s%s/", edge.ServiceRoot, w.deploy()), "body", held.entered)
	<-held.left
}

// switching is a program that switches protocols, whatever it is asked.
type switching struct{ closed chan bool }

func (s switching) RoundTrip(*fsm.View, *compute.Execution, *http.Request) (*http.Response, error) {
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, far)
		s.closed <- true
	}()
	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"x"}}, Body: near,
	}, nil
}

// TestUnaskedSwitch answers 502 when a program switches protocols that the client did not ask
// to switch, and closes the connection of the client.
func TestUnaskedSwitch(t *testing.T) {
	program := switching{make(chan bool, 1)}
	w := newWorld(t, func(c *handler.Config) { c.Services = program })
	w.upgrade()
	path := fmt.Sprintf("%s%s/", edge.ServiceRoot, w.deploy())
	for range 2 {
		a := w.fetch("GET", path, w.adaKey, nil, nil)
		if a.status != 502 || !strings.Contains(string(a.body), "unasked_upgrade") || a.header.Get("Retry-After") != "" {
			t.Fatalf("%d %s, headers %v", a.status, a.body, a.header)
		}
		<-program.closed
	}
}
