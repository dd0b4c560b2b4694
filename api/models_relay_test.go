package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/api/edge"
	"berth/api/handler"
)

// cutServer answers requests with a stream of events that ends in the middle of a line, as
// a server that is killed.
type cutServer struct{}

func (cutServer) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	cut, end := io.Pipe()
	go func() {
		_, _ = io.WriteString(end, "data: {\"n\":1}\n\ndata: {\"n")
		end.CloseWithError(io.ErrUnexpectedEOF)
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1, Body: cut,
	}, nil
}

// TestWorkersEndBrokenStreams cuts off the stream of a model that a worker passes on. The
// client gets the whole lines and an error event; a stream of a service stays as it is.
func TestWorkersEndBrokenStreams(t *testing.T) {
	w := newWorld(t)
	_, worker := w.newWorker(func(c *handler.Config) { c.ServiceRelay = cutServer{} })
	ask := func(path string) string {
		const body = `{"model":"m","stream":true}`
		conn, err := worker.dial()
		w.ok(err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: berth.test\r\nConnection: close\r\nAuthorization: Bearer "+w.adaKey+
			"\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n"+body)
		w.ok(err)
		text, _ := io.ReadAll(conn) // Cut off, it ends with an error.
		return string(text)
	}
	if text := ask("/openai/v1/chat/completions"); !strings.Contains(text, `data: {"n":1}`) || !strings.Contains(text, `"error":`) || strings.Contains(text, "data: {\"n\r") {
		t.Errorf("the client of a model has %q", text)
	}
	if text := ask("/services/0198c0de-0000-7000-8000-000000000001/x"); !strings.Contains(text, `data: {"n":1}`) || strings.Contains(text, `"error":`) {
		t.Errorf("the client of a service has %q", text)
	}
}

// TestWorkersHandOnTheOrganization names an organization in requests to models through a worker: it
// counts as on a server.
func TestWorkersHandOnTheOrganization(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil)
	_, worker := m.newWorker()
	for org, want := range map[string]int{"bob-lab": 200, "ada-lab": 403, "nobody-lab": 403} {
		for name, node := range map[string]*world{"server": m.world, "worker": worker} {
			a := node.fetch("GET", edge.ModelRoot+"/models", m.bobKey, nil, []string{"X-Org-Slug", org})
			if a.status != want {
				t.Errorf("%s: for %s: %d %s, want %d", name, org, a.status, a.body, want)
			}
		}
	}
}
