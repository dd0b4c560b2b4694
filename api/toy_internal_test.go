package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"

	"berth/api/edge"
	"berth/api/handler"
)

// toys is a group of one endpoint: everything that an endpoint takes is a route
// row, a struct for each body, and a handler. CONTRIBUTING.md lists these steps.
type toys struct{ *handler.Core }

type newToy struct {
	Name string `json:"name" required:"true" minlen:"1" maxlen:"10"`
}

type toy struct {
	Box  string `json:"box"`
	Name string `json:"name"`
}

func (g *toys) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/toys/{box}", Tag: "Toys", Local: true,
			Summary: "Put a toy into a box.",
			Body:    edge.Type[newToy](), Reply: edge.Type[toy](), Handle: g.create,
		},
	}
}

func (g *toys) create(r *edge.Request) (any, error) {
	return toy{Box: r.Params["box"], Name: r.Body.(*newToy).Name}, nil
}

// toyRelay is the relay of a node that needs no server: its routes are local.
type toyRelay struct{}

func (toyRelay) Relay(context.Context, edge.Relayed) (*edge.RelayedAnswer, error) { return nil, io.EOF }

func (toyRelay) Status() edge.QueryMeta { return edge.QueryMeta{} }

// TestToyEndpoint checks that a route row, a struct and a handler are enough for
// an endpoint: it is served, validated and documented.
func TestToyEndpoint(t *testing.T) {
	cfg := handler.Config{Config: edge.Config{
		Relay: toyRelay{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}}
	s, err := newAPI(cfg, func(s *edge.Server, c *handler.Core) []edge.Route {
		return append(routes(s, c), (&toys{c}).Routes()...)
	})
	if err != nil {
		t.Fatal(err)
	}
	l := fasthttputil.NewInmemoryListener()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial() },
	}}
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://berth.test"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, bytes.TrimSpace(data)
	}
	path := edge.Root + "/toys/red%20box"
	status, data := ask(http.MethodPost, path, `{"name": "bear"}`)
	if want := `{"box":"red box","name":"bear"}`; status != http.StatusOK || string(data) != want {
		t.Errorf("got %d %s, want 200 %s", status, data, want)
	}
	for _, body := range []string{`{}`, `{"name": ""}`, `{"name": 3}`, `{"name": "a bear too long"}`, `[`} {
		status, data := ask(http.MethodPost, path, body)
		var refusal struct{ Detail []struct{ Loc []any } }
		err := json.Unmarshal(data, &refusal)
		if status != http.StatusUnprocessableEntity || err != nil || len(refusal.Detail) != 1 {
			t.Errorf("%s: got %d %s, want one fault", body, status, data)
		}
	}
	if status, data := ask(http.MethodGet, path, ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d %s", status, data)
	}
	if _, data := ask(http.MethodGet, "/openapi.json", ""); !bytes.Contains(data, []byte(edge.Root+"/toys/{box}")) {
		t.Error("the OpenAPI document lacks the route")
	}
}
