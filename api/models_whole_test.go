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
	"berth/fsm/command"
)

// wholeModels answers each request at once with a large answer that is not a stream.
type wholeModels struct {
	lateModels

	body string
}

func (m *wholeModels) Infer(
	*fsm.View, *compute.Execution, *http.Request, []byte, uint64, *int,
) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(m.body)),
		Body: io.NopCloser(strings.NewReader(m.body)),
	}, nil
}

// TestWholeAnswersShareABudget has a client of a published model not read a large answer:
// another one for its organization is refused, and free, until it hangs up, and another
// organization gets its own.
func TestWholeAnswersShareABudget(t *testing.T) {
	models := &wholeModels{body: `{"usage":{"prompt_tokens":3,"completion_tokens":4},"choices":[{"text":"` +
		strings.Repeat("x", 12<<20) + `"}]}`}
	w := newWorld(t, func(c *handler.Config) {
		c.Models, c.Tokens, c.ModelLimits, c.Stopwatch = models, models, edge.ModelLimits{InFlight: 8}, time.Now
	})
	w.upgrade()
	w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: w.deploy()})
	w.listen()
	const path, body = edge.ModelRoot + "/chat/completions", `{"model":"chat","messages":[]}`
	conn, err := w.dial()
	w.ok(err)
	w.ok(conn.(*net.TCPConn).SetReadBuffer(4 << 10))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		path, w.adaKey, len(body), body)
	w.ok(err)
	w.eventually("charge of the answer that nobody reads", func() bool { return models.settled.Load() == 1 })
	a := w.send("POST", path, w.adaKey, body)
	if a.status != 503 || modelCode(a) != "too_many_bytes" || a.header.Get("Retry-After") == "" {
		t.Errorf("beside an answer that nobody reads = %d %.200s", a.status, a.body)
	}
	if ended, settled := models.ended.Load(), models.settled.Load(); ended != 2 || settled != 1 {
		t.Errorf("%d reservations have ended, %d with a charge", ended, settled)
	}
	if a := w.send("POST", path, w.bobKey, body); a.status != 200 || len(a.body) < len(models.body) {
		t.Errorf("another organization gets %d and %d bytes: %.300s", a.status, len(a.body), a.body)
	}
	conn.Close()
	w.eventually("memory again", func() bool { return w.send("POST", path, w.adaKey, body).status == 200 })
}
