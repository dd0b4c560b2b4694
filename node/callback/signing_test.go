package callback

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"berth/compute"
	"berth/fsm"
)

// TestSignature has receivers check callbacks with the new secret and with the one before.
func TestSignature(t *testing.T) {
	secret := func(b byte) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
	}
	var body []byte
	var header http.Header
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		header = r.Header
	}))
	defer receiver.Close()
	cas := x509.NewCertPool()
	cas.AddCert(receiver.Certificate())
	s := newSender(cas, time.Now, "127.0.0.0/8")
	var secrets []string
	var broken error
	s.cfg.Signing = func(*fsm.View, compute.OrgID, compute.Instant) ([]string, error) { return secrets, broken }
	c := &compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, URL: receiver.URL}
	accepts := func(secret string) bool {
		hook, err := standardwebhooks.NewWebhook(secret)
		return err == nil && hook.Verify(body, header) == nil
	}
	if _, err := s.send(t.Context(), empty(), c, c.URL); err != nil || header.Get("Webhook-Signature") != "" {
		t.Errorf("without a secret there is the signature %q, %v", header.Get("Webhook-Signature"), err)
	}
	secrets = []string{secret('b'), secret('a')}
	if _, err := s.send(t.Context(), empty(), c, c.URL); err != nil || !accepts(secret('a')) || !accepts(secret('b')) || accepts(secret('c')) {
		t.Errorf("the signature is %q, %v", header.Get("Webhook-Signature"), err)
	}
	body = append(body, ' ')
	if accepts(secret('b')) {
		t.Error("another body has the signature")
	}
	header = nil
	broken = errors.New("no master key")
	if _, err := s.send(t.Context(), empty(), c, c.URL); err == nil || header != nil || strings.Contains(err.Error(), "master") {
		t.Errorf("it is sent without its signature, or the error says why: %v", err)
	}
}

// TestFairShare has an organization with many dead hosts leave places for others.
func TestFairShare(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSender(nil, func() time.Time { return now })
	n := 0
	fill := func(org byte) (taken int) {
		for i := range 10 * inFlight {
			n++
			c := &compute.Callback{
				Execution: compute.ExecutionID{UUID: compute.UUID{org}}, Number: n,
				URL: "https://h" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + string(rune('a'+org)) + ".example/",
			}
			if _, started, _ := s.take(c, compute.OrgID{UUID: compute.UUID{org}}, now); started {
				taken++
			}
		}
		return taken
	}
	for org, want := range []int{32, 16, 8, 4, 2, 1, 1, 0} {
		if got := fill(byte(org)); got != want {
			t.Errorf("organization %d takes %d places, want %d", org+1, got, want)
		}
	}
	for k, org := range s.busy {
		if org.UUID[0] == 0 {
			s.release(k)
		}
	}
	if got := fill(8); got != 16 {
		t.Errorf("of 32 free places another organization takes %d", got)
	}
	if len(s.orgs) != 7 {
		t.Errorf("%d organizations are remembered", len(s.orgs))
	}
}
