package edge

import (
	"bufio"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"berth/api/edge/answer"
	"berth/api/edge/limit"
	"berth/compute"
	"berth/fsm/command"
)

// brokenWriter is a connection that is gone.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the connection is gone") }

// requestBy returns a request of an organization, of an operator for the route's
// need, or of a stranger for no organization.
func requestBy(org byte, need Need) *Request {
	r := &Request{IP: "127.0.0.1", route: &Route{Need: need}}
	if org != 0 {
		r.Caller.User = new(compute.User)
		r.Caller.Actor = command.Actor{Org: compute.OrgID{UUID: compute.UUID{org}}}
	}
	return r
}

// TestLargeAnswersAreReserved sends answers of several callers until their shares
// are used up, and gives them back when they are written and when connections
// end.
func TestLargeAnswersAreReserved(t *testing.T) {
	s, err := New(Config{Relay: noRelay{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	for _, tt := range []struct {
		name   string
		r      *Request
		budget *limit.Budget
		fit    int
	}{
		{"an organization", requestBy(1, NeedCaller), s.answers.held, maxAnswers / answerShare / size},
		{"another organization", requestBy(2, NeedCaller), s.answers.held, maxAnswers / answerShare / size},
		{"an operator", requestBy(1, NeedOperator), s.answers.heldOperators, operatorAnswers / size},
		{"a stranger", requestBy(0, NeedScraper), s.answers.heldStrangers, strangerAnswers / strangerShare / size},
	} {
		before := tt.budget.Reserved()
		var open []*fasthttp.RequestCtx
		send := func(body answer.Text) error {
			ctx := new(fasthttp.RequestCtx)
			err := s.text(ctx, tt.r, body)
			if err == nil {
				open = append(open, ctx)
			}
			return err
		}
		for range tt.fit {
			if err := send(answer.Text{Body: make([]byte, size)}); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		if got := tt.budget.Reserved() - before; got != tt.fit*size {
			t.Errorf("%s: %d bytes are reserved, want %d", tt.name, got, tt.fit*size)
		}
		e, ok := errors.AsType[*compute.Error](send(answer.Text{Body: make([]byte, size)}))
		if !ok || e.Code != compute.CodeUnavailable || e.Detail != "too_many_bytes" || e.RetryAfter <= 0 {
			t.Errorf("%s: one answer too many got %v", tt.name, e)
		}
		for _, free := range []answer.Text{{Body: make([]byte, limit.FreeAnswer)}, {Body: make([]byte, size), Shared: true}} {
			if err := send(free); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if tt.name == "an organization" {
			defer closeAll(t, open) // The next one has a share of its own.
			continue
		}
		closeAll(t, open)
		if tt.budget.Reserved() != before {
			t.Errorf("%s: %d bytes stay reserved", tt.name, tt.budget.Reserved()-before)
		}
	}
	// One answer that is larger than the share takes the share.
	huge := requestBy(3, NeedOperator)
	ctx := new(fasthttp.RequestCtx)
	if err := s.send(ctx, huge, make([]byte, operatorAnswers+1)); err != nil {
		t.Errorf("an answer larger than the share: %v", err)
	}
	closeAll(t, []*fasthttp.RequestCtx{ctx})
	if s.answers.heldOperators.Reserved() != 0 {
		t.Errorf("%d bytes stay reserved", s.answers.heldOperators.Reserved())
	}
}

// closeAll ends answers: the first is written, to the second the connection is
// gone, and the others are dropped before they are written.
func closeAll(t *testing.T, open []*fasthttp.RequestCtx) {
	t.Helper()
	for i, ctx := range open {
		switch i {
		case 0:
			var sent strings.Builder
			w := bufio.NewWriter(&sent)
			if err := errors.Join(ctx.Response.Write(w), w.Flush()); err != nil {
				t.Error(err)
			}
			if sent.Len() < limit.FreeAnswer {
				t.Errorf("%d bytes are written", sent.Len())
			}
		case 1:
			if ctx.Response.Write(bufio.NewWriter(brokenWriter{})) == nil {
				t.Error("a broken connection takes an answer")
			}
		default:
			ctx.Response.Reset()
		}
	}
}
