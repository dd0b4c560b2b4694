package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/edge/openai"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// panickingModels panics at one place of a request.
type panickingModels struct {
	lateModels

	place string
}

func (m *panickingModels) at(place string) {
	if m.place == place {
		panic("planted: " + place)
	}
}

func (m *panickingModels) Reserve(
	ctx context.Context, payer compute.Payer, model *compute.Model, prompt, completion int64,
) (openai.Reservation, error) {
	m.at("reserve")
	return m.lateModels.Reserve(ctx, payer, model, prompt, completion)
}

func (m *panickingModels) Admit(
	ctx context.Context, view *fsm.View, e *compute.Execution, org compute.OrgID, tokens int64,
) (func(int64), error) {
	m.at("queue")
	return m.lateModels.Admit(ctx, view, e, org, tokens)
}

func (m *panickingModels) Infer(
	_ *fsm.View, _ *compute.Execution, _ *http.Request, _ []byte, _ uint64, _ *int,
) (*http.Response, error) {
	m.at("engine")
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2,
		Body: &panickingBody{m},
	}, nil
}

// panickingBody is an answer that panics when it is read.
type panickingBody struct{ of *panickingModels }

func (b *panickingBody) Read([]byte) (int, error) {
	b.of.at("answer")
	return 0, http.ErrBodyReadAfterClose
}

func (b *panickingBody) Close() error { return nil }

// TestModelRequestsEndAfterAPanic holds that a request that panics is answered in the envelope
// of the OpenAI API, and releases what was set aside and its places: the next one needs them.
func TestModelRequestsEndAfterAPanic(t *testing.T) {
	for place, want := range map[string]struct{ ended, done, left int64 }{
		"reserve": {0, 0, 0}, "queue": {1, 1, 0}, "engine": {1, 1, 1}, "answer": {1, 1, 1},
	} {
		t.Run(place, func(t *testing.T) {
			models := &panickingModels{place: place}
			w := newWorld(t, func(c *handler.Config) {
				c.Models, c.Tokens, c.ModelLimits, c.Stopwatch = models, models, edge.ModelLimits{InFlight: 1}, time.Now
			})
			w.upgrade()
			w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: w.deploy()})
			for n := int64(1); n <= 2; n++ {
				a := w.send("POST", edge.ModelRoot+"/chat/completions", w.adaKey, `{"model":"chat","messages":[]}`)
				if a.status != 500 || modelCode(a) != "internal" || strings.Contains(string(a.body), "planted") {
					t.Errorf("request %d: %d %s", n, a.status, a.body)
				}
				ended, done, left := models.ended.Load(), models.done.Load(), models.left.Load()
				if ended != n*want.ended || done != n*want.done || left != n*want.left {
					t.Errorf("after %d requests %d reservations have ended, %d counts and %d places, want %v for each",
						n, ended, done, left, want)
				}
				if running := w.gauge("berth_inference_requests_running"); running != 0 {
					t.Errorf("%v requests are running", running)
				}
			}
		})
	}
}
