package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/edge/openai"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm/command"
)

// purse is Tokens that sets everything aside, and sends what is charged.
type purse struct {
	asked   int64 // Tokens of the last answer that were to be set aside.
	charged chan openai.Usage
}

func (p *purse) Reserve(
	_ context.Context, _ compute.Payer, _ *compute.Model, _, completion int64,
) (openai.Reservation, error) {
	p.asked = completion
	return p, nil
}

func (p *purse) Settle(_ context.Context, prompt, completion int64) error {
	p.charged <- openai.Usage{Prompt: prompt, Completion: completion}
	return nil
}

func (p *purse) Cancel() {}

// newPurseWorld returns a world with the published model chat, a million tokens of whose answers have
// a price.
func newPurseWorld(t *testing.T, p *purse, price compute.Credits, engine http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	w := newWorld(t, func(c *handler.Config) {
		c.Models, c.Tokens, c.Stopwatch = &engineModels{at: server.Listener.Addr().String()}, p, time.Now
		c.ModelLimits = edge.ModelLimits{InFlight: 1}
	})
	w.upgrade()
	w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: w.deploy(), Prices: compute.TokenPrices{Completion: price}})
	return w
}

// TestOpenAnswersArePaidFor asks as a payer with 100 credits. An answer that the request does not limit
// gets a limit if they do not pay for 256 of its length, and that is set aside.
func TestOpenAnswersArePaidFor(t *testing.T) {
	for _, test := range []struct {
		price  compute.Credits
		fields string
		sent   string // Beside the model and the messages.
		held   int64
	}{
		{0, "", "", 1024},
		{11 * compute.Credit, "", "", 1024},
		{12 * compute.Credit, "", `"max_tokens":4096,`, 4096},
		{100 * compute.Credit, "", `"max_tokens":1024,`, 1024},
		{100 * compute.Credit, `"max_tokens":2000,`, `"max_tokens":2000,`, 2000},
	} {
		sent := "nothing"
		p := &purse{charged: make(chan openai.Usage, 1)}
		w := newPurseWorld(t, p, test.price, func(answer http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			sent, _, _ = strings.Cut(strings.TrimPrefix(string(body), "{"), `"model"`)
			fmt.Fprint(answer, `{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)
		})
		if credits := w.machine.View().Account(w.org("ada-lab")).Available(); credits != 100*compute.Credit {
			t.Fatalf("the payer has %s credits", credits)
		}
		a := w.send("POST", edge.ModelRoot+"/chat/completions", w.adaKey, "{"+test.fields+`"model":"chat","messages":[]}`)
		if a.status != http.StatusOK || sent != test.sent || p.asked != test.held {
			t.Errorf("at %s credits %q is answered %d, sent as %q with %d tokens set aside, want %q with %d",
				test.price, test.fields, a.status, sent, p.asked, test.sent, test.held)
		}
	}
}

// TestOpenAnswersFit asks as a payer whose answers get a limit, with a prompt that leaves room for a part of it
// only. The engine is asked again for a shorter answer, and its last refusal is passed on.
func TestOpenAnswersFit(t *testing.T) {
	for _, test := range []struct {
		room   int
		status int
		sent   []string
	}{
		{5000, http.StatusOK, []string{"4096"}},
		{200, http.StatusOK, []string{"4096", "1024", "128"}},
		{0, http.StatusBadRequest, []string{"4096", "1024", "128", "16"}},
	} {
		var sent []string
		p := &purse{charged: make(chan openai.Usage, 1)}
		w := newPurseWorld(t, p, 12*compute.Credit, func(answer http.ResponseWriter, req *http.Request) {
			var body struct {
				Most int `json:"max_tokens"`
			}
			err := json.NewDecoder(req.Body).Decode(&body)
			if sent = append(sent, strconv.Itoa(body.Most)); err != nil || body.Most > test.room {
				answer.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(answer, `{"error":{"message":"too long"}}`)
				return
			}
			fmt.Fprint(answer, `{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)
		})
		a := w.send("POST", edge.ModelRoot+"/chat/completions", w.adaKey, `{"model":"chat","messages":[]}`)
		if a.status != test.status || !slices.Equal(sent, test.sent) {
			t.Errorf("with room for %d tokens it is answered %d after %v, want %d after %v",
				test.room, a.status, sent, test.status, test.sent)
		}
	}
}

// TestLeftStreamsAreCharged leaves a stream without a limit before the engine has said its usage. All
// events that were sent are charged.
func TestLeftStreamsAreCharged(t *testing.T) {
	const events = 3000 // More than a usual answer has.
	p := &purse{charged: make(chan openai.Usage, 1)}
	w := newPurseWorld(t, p, compute.Credit, func(answer http.ResponseWriter, req *http.Request) {
		answer.Header().Set("Content-Type", "text/event-stream")
		for range events {
			fmt.Fprint(answer, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		}
		_ = http.NewResponseController(answer).Flush()
		<-req.Context().Done()
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+edge.ModelRoot+"/completions",
		strings.NewReader(`{"model":"chat","stream":true,"prompt":"a"}`))
	w.ok(err)
	req.Header.Set("Authorization", "Bearer "+w.adaKey)
	answer, err := w.client.Do(req)
	w.ok(err)
	lines := bufio.NewScanner(answer.Body)
	for range 2 * events {
		lines.Scan()
	}
	answer.Body.Close()
	select {
	case used := <-p.charged:
		if used.Completion != events {
			t.Errorf("charged for %d tokens, want %d", used.Completion, events)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is charged")
	}
}
