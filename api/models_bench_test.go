package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
)

// instantModels answers each request at once, by a stream of some events.
type instantModels struct {
	engineModels
	text string
}

func (m *instantModels) Infer(
	*fsm.View, *compute.Execution, *http.Request, []byte, uint64, *int,
) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(m.text)),
	}, nil
}

// BenchmarkModelRequest measures what a node adds to a request to a model.
func BenchmarkModelRequest(b *testing.B) {
	models := &instantModels{text: strings.Repeat("data: {\"choices\":[]}\n\n", 10)}
	w := newWorld(b, func(c *handler.Config) {
		c.Models, c.ModelLimits, c.Stopwatch = models, edge.ModelLimits{InFlight: 100, AnswerWait: time.Minute}, time.Now
	})
	w.upgrade()
	w.listen()
	var conn net.Conn
	body := fmt.Sprintf(`{"model":"%s","messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":10}`, w.deploy())
	request := []byte(fmt.Sprintf("POST %s/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		edge.ModelRoot, w.adaKey, len(body), body))
	buf := make([]byte, 64<<10)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		if n%9000 == 0 { // A connection has a limit of requests.
			var err error
			conn, err = w.dial()
			w.ok(err)
			defer conn.Close()
		}
		_, err := conn.Write(request)
		w.ok(err)
		for end := false; !end; {
			n, err := conn.Read(buf)
			w.ok(err)
			end = strings.HasSuffix(string(buf[:n]), "0\r\n\r\n")
		}
	}
}
