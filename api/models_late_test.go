package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/edge/openai"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// lateModels answers a request once its client has left, as an engine does that cannot be
// stopped any more. It counts how often a request ends, as its Tokens too.
type lateModels struct {
	engineModels

	answer  func() *http.Response
	entered chan bool
	done    atomic.Int64 // Calls of Count's done,
	left    atomic.Int64 // and of Admit's leave,
	ended   atomic.Int64 // and reservations that have ended,
	settled atomic.Int64 // those with a charge.
}

func (m *lateModels) Count(compute.ExecutionID, func() time.Time) (answered, done func()) {
	return func() {}, func() { m.done.Add(1) }
}

func (m *lateModels) Admit(
	context.Context, *fsm.View, *compute.Execution, compute.OrgID, int64,
) (func(int64), error) {
	return func(int64) { m.left.Add(1) }, nil
}

func (m *lateModels) Infer(
	_ *fsm.View, _ *compute.Execution, req *http.Request, _ []byte, _ uint64, _ *int,
) (*http.Response, error) {
	m.entered <- true
	<-req.Context().Done()
	return m.answer(), nil
}

func (m *lateModels) Reserve(
	context.Context, compute.Payer, *compute.Model, int64, int64,
) (openai.Reservation, error) {
	return &lateReservation{of: m}, nil
}

// lateReservation is ended by the first call of its methods, as edge.Reservation says.
type lateReservation struct {
	of   *lateModels
	over atomic.Bool
}

func (r *lateReservation) Settle(context.Context, int64, int64) error {
	if !r.over.Swap(true) {
		r.of.ended.Add(1)
		r.of.settled.Add(1)
	}
	return nil
}

func (r *lateReservation) Cancel() {
	if !r.over.Swap(true) {
		r.of.ended.Add(1)
	}
}

// TestAnswersAfterTheClientLeft holds that a request ends once whatever its engine answers
// after its client has left: what was set aside and its places are released, and a whole
// answer that nobody waited for is free. A stream may have been sent before that is noticed.
func TestAnswersAfterTheClientLeft(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":3,"completion_tokens":4}`
	whole := func(status int, kind, body string) func() *http.Response {
		return func() *http.Response {
			return &http.Response{
				StatusCode: status, Header: http.Header{"Content-Type": {kind}}, ContentLength: int64(len(body)),
				Body: io.NopCloser(strings.NewReader(body)),
			}
		}
	}
	stream := func(body string) func() *http.Response {
		answer := whole(200, "text/event-stream", body) //nolint:bodyclose // There is nothing to close.
		return func() *http.Response {
			out := answer()
			out.ContentLength = -1
			return out
		}
	}
	for name, test := range map[string]struct {
		stream string
		answer func() *http.Response
	}{
		"whole":        {"false", whole(200, "application/json", `{"choices":[{"text":"a"}],`+usage+`}`)}, //nolint:bodyclose // There is nothing to close.
		"without size": {"false", whole(200, "application/json", `{"choices":[{"text":"a"}]}`)},           //nolint:bodyclose // There is nothing to close.
		"error":        {"false", whole(500, "application/json", `{"error":{}}`)},                         //nolint:bodyclose // There is nothing to close.
		"stream":       {"true", stream("data: {\"choices\":[]," + usage + "}\n\ndata: [DONE]\n\n")},      //nolint:bodyclose // There is nothing to close.
		"no event":     {"true", stream("")},                                                              //nolint:bodyclose // There is nothing to close.
	} {
		t.Run(name, func(t *testing.T) {
			models := &lateModels{answer: test.answer, entered: make(chan bool)}
			w := newWorld(t, func(c *handler.Config) {
				c.Models, c.Tokens, c.ModelLimits, c.Stopwatch = models, models, edge.ModelLimits{InFlight: 1}, time.Now
			})
			w.upgrade()
			w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: w.deploy()})
			for n := int64(1); n <= 2; n++ { // The second one needs the place of the first.
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					<-models.entered
					leave()
				}()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+edge.ModelRoot+"/chat/completions",
					strings.NewReader(`{"model":"chat","messages":[],"stream":`+test.stream+`}`))
				w.ok(err)
				req.Header.Set("Authorization", "Bearer "+w.adaKey)
				if answer, err := w.client.Do(req); err == nil {
					answer.Body.Close()
					t.Errorf("a client that left gets %d", answer.StatusCode)
				}
				w.eventually("end of the request", func() bool { return w.gauge("berth_inference_requests_running") == 0 })
				w.eventually("release of its places", func() bool { return models.done.Load() == n && models.left.Load() == n })
				if ended, settled := models.ended.Load(), models.settled.Load(); ended != n || settled > 0 && test.stream == "false" {
					t.Errorf("after %d requests %d reservations have ended, %d with a charge", n, ended, settled)
				}
			}
		})
	}
}

// goneModels holds requests in one place until their client has left.
type goneModels struct {
	lateModels

	place string
}

func (m *goneModels) hold(ctx context.Context, place string) error {
	if m.place != place {
		return nil
	}
	m.entered <- true
	<-ctx.Done()
	return ctx.Err()
}

func (m *goneModels) Reserve(
	ctx context.Context, _ compute.Payer, _ *compute.Model, _, _ int64,
) (openai.Reservation, error) {
	return &lateReservation{of: &m.lateModels}, m.hold(ctx, "reserve")
}

func (m *goneModels) Admit(
	ctx context.Context, _ *fsm.View, _ *compute.Execution, _ compute.OrgID, _ int64,
) (func(int64), error) {
	return func(int64) {}, m.hold(ctx, "queue")
}

func (m *goneModels) Infer(
	_ *fsm.View, _ *compute.Execution, req *http.Request, _ []byte, _ uint64, _ *int,
) (*http.Response, error) {
	return nil, m.hold(req.Context(), "engine")
}

// TestClientsThatLeaveAreCounted counts requests whose client leaves before the answer
// apart from those that the service failed.
func TestClientsThatLeaveAreCounted(t *testing.T) {
	for _, place := range []string{"reserve", "queue", "engine"} {
		t.Run(place, func(t *testing.T) {
			models := &goneModels{lateModels: lateModels{entered: make(chan bool)}, place: place}
			w := newWorld(t, func(c *handler.Config) {
				c.Models, c.Tokens, c.ModelLimits, c.Stopwatch = models, models, edge.ModelLimits{InFlight: 1}, time.Now
			})
			w.upgrade()
			w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: w.deploy()})
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-models.entered
				leave()
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+edge.ModelRoot+"/chat/completions",
				strings.NewReader(`{"model":"chat","messages":[]}`))
			w.ok(err)
			req.Header.Set("Authorization", "Bearer "+w.adaKey)
			if answer, err := w.client.Do(req); err == nil {
				answer.Body.Close()
				t.Errorf("a client that left gets %d", answer.StatusCode)
			}
			w.eventually("count of the request", func() bool { return len(w.modelCodes()) > 0 })
			if got := strings.Join(w.modelCodes(), " "); got != "499" {
				t.Errorf("it is counted as %s, want 499", got)
			}
		})
	}
}

// modelCodes returns the statuses of the requests to models that were counted.
func (w *world) modelCodes() (codes []string) {
	w.Helper()
	families, err := w.cfg.Gatherer.Gather()
	w.ok(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if f.GetName() == "berth_inference_requests_total" && label.GetName() == "code" {
					codes = append(codes, label.GetValue())
				}
			}
		}
	}
	return codes
}

// behindModels answers only requests that see what was acknowledged after their second try.
type behindModels struct {
	engineModels

	change func() // An acknowledged write.
	tries  int
	from   uint64 // The first view with the change.
}

func (m *behindModels) Infer(
	view *fsm.View, _ *compute.Execution, _ *http.Request, _ []byte, _ uint64, _ *int,
) (*http.Response, error) {
	if m.tries++; m.tries == 2 {
		m.from = view.Index() + 1
		m.change()
	}
	if m.tries > 2 && view.Index() >= m.from {
		return &http.Response{
			StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2,
			Body: io.NopCloser(strings.NewReader("{}")),
		}, nil
	}
	return nil, compute.Errorf(compute.CodeUnavailable, "No replica answered.").Named("replica_failed")
}

// TestRetriesSeeNewReplicas holds that each try of a request sees the state of its time: a
// replica that ended is found to have ended, and the one after it to be ready.
func TestRetriesSeeNewReplicas(t *testing.T) {
	models := &behindModels{}
	w := newWorld(t, func(c *handler.Config) { c.Models, c.Stopwatch = models, time.Now })
	w.upgrade()
	id := w.deploy()
	models.change = func() { w.addNode(7, "a100") }
	answer := w.send(http.MethodPost, edge.ModelRoot+"/chat/completions", w.adaKey,
		`{"model":"`+id.String()+`","messages":[]}`)
	if answer.status != http.StatusOK || models.tries != 3 {
		t.Errorf("the answer to try %d is %d: %s", models.tries, answer.status, answer.body)
	}
}

// orphanedModels answers the second try of a request. The cluster loses its leader with the
// replica of the first one.
type orphanedModels struct {
	engineModels

	lose  func()
	tries int
}

func (m *orphanedModels) Infer(
	*fsm.View, *compute.Execution, *http.Request, []byte, uint64, *int,
) (*http.Response, error) {
	if m.tries++; m.tries == 1 {
		m.lose()
		return nil, compute.Errorf(compute.CodeUnavailable, "No replica answered.").Named("replica_failed")
	}
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2,
		Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}

// TestRetriesWithoutALeader holds that a request whose replica ended together with the leader is
// answered by another replica, for as long as requests are without a leader.
func TestRetriesWithoutALeader(t *testing.T) {
	for contact, want := range map[time.Duration]int{0: 200, 4 * time.Second: 200, 6 * time.Second: 503} {
		models := &orphanedModels{}
		w := newWorld(t, func(c *handler.Config) { c.Models, c.Stopwatch = models, time.Now })
		w.upgrade()
		id := w.deploy()
		models.lose = func() {
			w.know(func(s *readerState) { s.noLeader, s.lastContact = true, contact })
		}
		answer := w.send(http.MethodPost, edge.ModelRoot+"/chat/completions", w.adaKey,
			`{"model":"`+id.String()+`","messages":[]}`)
		if answer.status != want {
			t.Errorf("%s after the last contact: try %d is answered %d: %s", contact, models.tries, answer.status, answer.body)
		}
	}
}
