package payment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82/webhook"

	"berth/compute"
)

// fake speaks the part of Stripe's protocol that purchases need: form-encoded requests
// with a secret key and an Idempotency-Key, which belongs to the parameters of its first
// request, JSON answers and errors.
type fake struct {
	*httptest.Server

	sessions map[string]url.Values // By Idempotency-Key.
	busy     bool                  // The first request with each key is still being answered.
	down     bool
}

const (
	testKey    = "sk_test_berth"
	testSecret = "whsec_berth"
)

func newFake(t *testing.T) *fake {
	f := &fake{sessions: map[string]url.Values{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, err := url.ParseQuery(string(body))
		switch {
		case f.down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil || r.URL.Path != "/v1/checkout/sessions" || r.Method != http.MethodPost:
			http.Error(w, `{"error":{"type":"invalid_request_error"}}`, http.StatusNotFound)
		case r.Header.Get("Authorization") != "Bearer "+testKey:
			http.Error(w, `{"error":{"type":"invalid_request_error","code":"api_key"}}`, http.StatusUnauthorized)
		default:
			key := r.Header.Get("Idempotency-Key")
			first, known := f.sessions[key]
			if f.busy {
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use"}}`)
				return
			}
			if known && !reflect.DeepEqual(first, form) {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":{"type":"idempotency_error"}}`)
				return
			}
			f.sessions[key] = form
			fmt.Fprintf(w, `{"id":"cs_%s","object":"checkout.session","url":"https://checkout.example/%s"}`, key, key)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) stripe(key string) *Stripe {
	return New(Config{
		Key: key, WebhookSecret: testSecret, Currency: "eur", UnitAmount: 150, URL: f.URL,
		Cluster: func() compute.UUID { return compute.UUID{1} },
	})
}

// order is a wish for 10.5 credits, which cost 15.75 EUR.
func order() compute.Order {
	return compute.Order{
		Org: compute.OrgID{UUID: compute.UUID{2}}, Name: "Lab", Amount: 10_500_000, Request: "r1",
		SuccessURL: "https://lab.example/", CancelURL: "https://lab.example/",
	}
}

// report returns a signed report on a checkout session.
func report(t *testing.T, kind string, session map[string]any, secret string, at time.Time) ([]byte, string) {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"id": "evt_1", "object": "event", "type": kind, "api_version": "2020-08-27", "data": map[string]any{"object": session},
	})
	if err != nil {
		t.Fatal(err)
	}
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: payload, Secret: secret, Timestamp: at})
	return payload, signed.Header
}

// TestPurchase takes a purchase from the order to the report of its payment.
func TestPurchase(t *testing.T) {
	f := newFake(t)
	s := f.stripe(testKey)
	first, err := s.Checkout(t.Context(), order())
	again, err2 := s.Checkout(t.Context(), order())
	if err != nil || err2 != nil || first != again || first.URL == "" || len(f.sessions) != 1 {
		t.Fatalf("got %+v, then %+v, %v, %v", first, again, err, err2)
	}
	form := f.sessions["berth-r1"]
	if got := form.Get("line_items[0][price_data][unit_amount]"); got != "1575" || form.Get("mode") != "payment" {
		t.Errorf("asked for %s of %v", got, form)
	}
	meta := map[string]string{}
	for _, name := range []string{metaCluster, metaOrg, metaCredits, metaTotal, metaIn} {
		meta[name] = form.Get("metadata[" + name + "]")
	}
	session := map[string]any{
		"id": first.ID, "object": "checkout.session", "payment_status": "paid", "amount_total": 1575, "currency": "eur",
		"payment_intent": "pi_1", "customer": "cus_1", "metadata": meta,
	}
	body, header := report(t, "checkout.session.completed", session, testSecret, time.Now())
	p, about, err := s.Confirm(body, header)
	want := compute.Purchase{
		Org: order().Org, ID: first.ID, Amount: 10_500_000, Paid: 1575, Currency: "eur", Payment: "pi_1", Customer: "cus_1",
	}
	if err != nil || !about || p != want {
		t.Errorf("got %+v, %v, %v; want %+v", p, about, err, want)
	}

	s.cfg.Currency = "usd" // The session is from before.
	if p, about, err := s.Confirm(body, header); err != nil || !about || p != want {
		t.Errorf("after the currency changed: %+v, %v, %v", p, about, err)
	}

	for name, change := range map[string]func(map[string]any){
		"not paid yet":      func(s map[string]any) { s["payment_status"] = "unpaid" },
		"another cluster's": func(s map[string]any) { s["metadata"] = map[string]string{metaCluster: "x"} },
	} {
		other := map[string]any{}
		for k, v := range session {
			other[k] = v
		}
		change(other)
		body, header := report(t, "checkout.session.completed", other, testSecret, time.Now())
		if p, about, err := s.Confirm(body, header); err != nil || about {
			t.Errorf("%s: %+v, %v, %v", name, p, about, err)
		}
	}
	session["amount_total"] = 1574
	body, header = report(t, "checkout.session.completed", session, testSecret, time.Now())
	if p, about, err := s.Confirm(body, header); compute.CodeOf(err) != compute.CodeConflict || about ||
		p.ID != first.ID || p.Payment != "pi_1" || p.Org != order().Org {
		t.Errorf("too little was paid: %+v, %v, %v", p, about, err)
	}
	body, header = report(t, "invoice.paid", session, testSecret, time.Now())
	if _, about, err := s.Confirm(body, header); err != nil || about {
		t.Errorf("another event: %v, %v", about, err)
	}
}

// TestForgedReports holds that only the provider's own, recent reports count.
func TestForgedReports(t *testing.T) {
	s := newFake(t).stripe(testKey)
	body, header := report(t, "checkout.session.completed", map[string]any{}, testSecret, time.Now())
	_, old := report(t, "checkout.session.completed", map[string]any{}, testSecret, time.Now().Add(-time.Hour))
	_, other := report(t, "checkout.session.completed", map[string]any{}, "whsec_other", time.Now())
	for name, given := range map[string]struct {
		body   []byte
		header string
	}{
		"none": {body, ""}, "replayed": {body, old}, "another secret": {body, other}, "garbage": {body, "t=1,v1=zz"},
		"another body": {append([]byte(" "), body...), header},
	} {
		_, _, err := s.Confirm(given.body, given.header)
		if compute.CodeOf(err) != compute.CodeInvalid || strings.Contains(err.Error(), "clock") != (name == "replayed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRepeats holds that a request which is repeated with another order, or before its first
// answer, is a conflict.
func TestRepeats(t *testing.T) {
	f := newFake(t)
	s := f.stripe(testKey)
	if _, err := s.Checkout(t.Context(), order()); err != nil {
		t.Fatal(err)
	}
	other := order()
	other.Amount++
	_, reused := s.Checkout(t.Context(), other)
	f.busy = true
	_, busy := s.Checkout(t.Context(), order())
	for want, err := range map[string]error{"idempotency_key_reused": reused, "idempotency_in_flight": busy} {
		if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeConflict || e.Detail != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestProviderFails holds that an outage can be repeated, and that errors hold no key.
func TestProviderFails(t *testing.T) {
	f := newFake(t)
	if _, err := f.stripe("sk_wrong").Checkout(t.Context(), order()); compute.CodeOf(err) != compute.CodeInternal {
		t.Errorf("a wrong key: %v", err)
	}
	f.Close()
	if _, err := f.stripe(testKey).Checkout(t.Context(), order()); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("an outage: %v", err)
	}
	tooMuch := order()
	tooMuch.Amount = 1 << 60
	_, err := f.stripe(testKey).Checkout(t.Context(), tooMuch)
	if compute.CodeOf(err) != compute.CodeInvalid || !strings.Contains(compute.MessageOf(err), "at most 666666.66 credits") {
		t.Errorf("too much: %v", err)
	}
}
