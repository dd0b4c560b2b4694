package callback

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/compute/address"
	"berth/fsm"
)

func TestPermits(t *testing.T) {
	g := &guard{deny: address.Special(), allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	for address, want := range map[string]bool{
		"93.184.216.34": true, "8.8.8.8": true, "2606:4700::1111": true, "10.1.2.3": true, "::ffff:10.1.2.3": true,
		"10.2.0.1": false, "127.0.0.1": false, "0.0.0.0": false, "169.254.169.254": false, "100.64.0.1": false,
		"172.16.0.1": false, "192.168.1.1": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false,
		"::1": false, "::": false, "::ffff:127.0.0.1": false, "::127.0.0.1": false, "fe80::1%eth0": false, "fd00::1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "ff02::1": false,
	} {
		if err := g.permits(netip.MustParseAddr(address)); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	for before, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 10 * time.Second, 5: 160 * time.Second, 9: 2560 * time.Second, 10: time.Hour, 1000: time.Hour,
	} {
		if got := Backoff(before, 0); got != want {
			t.Errorf("after %d tries: %v, want %v", before, got, want)
		}
		if got := Backoff(before, 1); got != want*3/4 {
			t.Errorf("after %d tries, at the least: %v", before, got)
		}
	}
}

// newSender returns a Sender that may reach networks.
func newSender(cas *x509.CertPool, now func() time.Time, allow ...string) *Sender {
	cfg := Config{
		CAs: cas, Now: now, Logger: slog.New(slog.DiscardHandler), Agent: "berth/test",
		Body: func(_ *fsm.View, c *compute.Callback) ([]byte, bool) {
			return []byte(`{"execution_id":"x"}`), !c.Execution.IsZero()
		},
	}
	for _, text := range allow {
		cfg.Allow = append(cfg.Allow, netip.MustParsePrefix(text))
	}
	cfg.Secret = func(*fsm.View, compute.ExecutionID, string) (string, error) { return "", errors.New("none") }
	cfg.Signing = func(*fsm.View, compute.OrgID, compute.Instant) ([]string, error) { return nil, nil }
	s := New(cfg)
	s.reset()
	return s
}

// empty is the view of a state without executions.
func empty() *fsm.View { return fsm.New().View() }

// TestSend posts to receivers that answer in various ways.
func TestSend(t *testing.T) {
	var asked []string
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path)
		switch r.URL.Path {
		case "/ok":
			if string(body) != `{"execution_id":"x"}` || r.Header.Get("Webhook-Id") == "" || r.Header.Get("Webhook-Timestamp") != "1000" ||
				r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost {
				t.Errorf("got %s %s, %v", r.Method, body, r.Header)
			}
			w.WriteHeader(http.StatusAccepted)
		case "/away":
			http.Redirect(w, r, "/ok", http.StatusFound)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer receiver.Close()
	cas := x509.NewCertPool()
	cas.AddCert(receiver.Certificate())
	now := func() time.Time { return time.Unix(1000, 0) }
	id := compute.ExecutionID{UUID: compute.UUID{1}}
	named := strings.Replace(receiver.URL, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url string
		s         *Sender
		code      int
		says      string
	}{
		{"delivered", receiver.URL + "/ok", newSender(cas, now, "127.0.0.0/8"), 202, ""},
		{"redirect", receiver.URL + "/away", newSender(cas, now, "127.0.0.0/8"), 302, "302"},
		{"refused", receiver.URL + "/no", newSender(cas, now, "127.0.0.0/8"), 418, "418"},
		{"private address", receiver.URL + "/ok", newSender(cas, now), 0, "not a public address"},
		{"name of a private address", named + "/ok", newSender(cas, now), 0, "not a public address"},
		{"another network allowed", receiver.URL + "/ok", newSender(cas, now, "10.0.0.0/8"), 0, "not a public address"},
		{"unknown authority", receiver.URL + "/ok", newSender(nil, now, "127.0.0.0/8"), 0, "certificate"},
		{"plain", "http" + strings.TrimPrefix(receiver.URL, "https") + "/ok", newSender(cas, now, "127.0.0.0/8"), 0, "https"},
	} {
		code, err := tt.s.send(t.Context(), empty(), &compute.Callback{Execution: id, URL: tt.url}, tt.url)
		if code != tt.code || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %d, %v", tt.name, code, err)
		}
		if err != nil && strings.Contains(err.Error(), "/ok") {
			t.Errorf("%s: the error shows the URL: %v", tt.name, err)
		}
	}
	if got := strings.Join(asked, " "); got != "/ok /away /no" {
		t.Errorf("asked %s", got)
	}
	if _, err := newSender(cas, now, "127.0.0.0/8").send(t.Context(), empty(), &compute.Callback{URL: receiver.URL}, receiver.URL); err == nil {
		t.Error("a callback of an unknown execution was sent")
	}
}

// TestDeadHost holds that a host that fails is left alone and delays no other.
func TestDeadHost(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSender(nil, func() time.Time { return now })
	n := 0
	take := func(host string) (*receiver, bool) {
		n++
		where, started, full := s.take(&compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Number: n, URL: "https://" + host + "/x"}, compute.OrgID{}, now)
		if full {
			t.Fatal("no place is left")
		}
		return where, started
	}
	for i := range hostInFlight + 1 {
		if _, started := take("dead.example"); started != (i < hostInFlight) {
			t.Errorf("try %d: started %t", i, started)
		}
	}
	if _, started := take("DEAD.example"); started {
		t.Error("letters of another case make another host")
	}
	if _, started := take("alive.example"); !started {
		t.Error("a host waits for another one")
	}
	dead := s.hosts[place{host: "dead.example"}]
	for range hostInFlight {
		s.leave(dead, false)
	}
	where, started := take("dead.example")
	if !started {
		t.Fatal("a host is left alone too early")
	}
	s.leave(where, false)
	if _, started := take("dead.example"); started {
		t.Error("a dead host is tried at once")
	}
	other := compute.OrgID{UUID: compute.UUID{7}}
	c := &compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{2}}, URL: "https://dead.example/y"}
	if _, started, _ := s.take(c, other, now); !started {
		t.Error("a host that is dead to one organization is left alone for another one")
	}
	now = now.Add(openFor)
	where, started = take("dead.example")
	if _, second := take("dead.example"); !started || second {
		t.Error("not one try finds out whether the host is back")
	}
	s.leave(where, true)
	if _, known := s.hosts[place{host: "dead.example"}]; known {
		t.Error("a host that is back is remembered")
	}
}

// TestAnswersOfLiveHosts has a receiver refuse callbacks again and again. It is left alone only if it
// says that it cannot take any.
func TestAnswersOfLiveHosts(t *testing.T) {
	code := 0
	answering := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer answering.Close()
	cas := x509.NewCertPool()
	cas.AddCert(answering.Certificate())
	now := time.Unix(1_000_000, 0)
	for _, tt := range []struct {
		code int
		open bool
	}{{200, false}, {302, false}, {404, false}, {410, false}, {500, false}, {429, true}, {502, true}, {503, true}, {504, true}} {
		s := newSender(cas, func() time.Time { return now }, "127.0.0.0/8")
		s.done = make(chan compute.Delivery, 1)
		code = tt.code
		started := true
		for n := range failuresToOpen + 1 {
			c := &compute.Callback{
				Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Number: n, URL: answering.URL, CreatedAt: compute.InstantOf(now),
			}
			var where *host
			if where, started, _ = s.take(c, compute.OrgID{}, now); !started {
				break
			}
			s.try(t.Context(), empty(), c, where)
			<-s.done
			s.release(key{c.Owner(), c.Number})
		}
		if started == tt.open {
			t.Errorf("after %d it is left alone: %t", tt.code, !started)
		}
	}
}

// TestForgetHosts forgets hosts that failed long ago, and no other.
func TestForgetHosts(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSender(nil, func() time.Time { return now })
	take := func(n int, name string) *host {
		c := &compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Number: n, URL: "https://" + name}
		where, started, _ := s.take(c, compute.OrgID{}, now)
		if !started {
			t.Fatalf("%s is left alone", name)
		}
		return where
	}
	fail := func(n int, name string) {
		s.leave(take(n, name), false)
		s.release(key{compute.UUID{1}, n})
	}
	for n := range 1000 {
		fail(n, fmt.Sprintf("h%d.example", n))
	}
	take(1000, "busy.example")
	now = now.Add(forgetAfter - time.Second)
	fail(1001, "late.example")
	if len(s.hosts) != 1002 {
		t.Errorf("%d hosts are remembered before their time", len(s.hosts))
	}
	now = now.Add(openFor)
	fail(1002, "new.example")
	if len(s.hosts) != 3 {
		t.Errorf("%d hosts are remembered", len(s.hosts))
	}
}

// receiver is a host, where a parameter has its name.
type receiver = host

// TestWindow gives a callback up that is older than its window, without a try.
func TestWindow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := newSender(nil, func() time.Time { return now })
	s.done, s.left = make(chan compute.Delivery, 2), make(chan struct{}, 1)
	for _, tt := range []struct {
		age  time.Duration
		next bool
	}{{compute.CallbackWindow - time.Minute, true}, {compute.CallbackWindow - time.Second, false}, {compute.CallbackWindow + time.Second, false}} {
		c := &compute.Callback{
			Execution: compute.ExecutionID{UUID: compute.UUID{1}}, URL: "https://127.0.0.1:1/",
			CreatedAt: compute.InstantOf(now.Add(-tt.age)),
		}
		where, _, _ := s.take(c, compute.OrgID{}, now)
		s.try(context.Background(), empty(), c, where)
		d := <-s.done
		if d.Delivered || d.NextAt.IsZero() == tt.next || d.Error == "" {
			t.Errorf("after %v: %+v", tt.age, d)
		}
		s.release(key{c.Owner(), c.Number})
	}
	c := &compute.Callback{
		Execution: compute.ExecutionID{UUID: compute.UUID{1}}, URL: "https://127.0.0.1:1/${{ secrets.MISSING }}",
		CreatedAt: compute.InstantOf(now),
	}
	where, _, _ := s.take(c, compute.OrgID{}, now)
	s.try(context.Background(), empty(), c, where)
	if d := <-s.done; !d.NextAt.IsZero() || !strings.Contains(d.Error, "secret MISSING: none") {
		t.Errorf("a URL with a secret: %+v", d)
	}
}

// TestFill puts secrets into a URL, which keeps its host and its parts.
func TestFill(t *testing.T) {
	s := &Sender{cfg: Config{Secret: func(_ *fsm.View, _ compute.ExecutionID, name string) (string, error) {
		if name == "MISSING" {
			return "", errors.New("none")
		}
		return map[string]string{"HOOK": "T0/B1/x y", "BAD": "a?b#c@d\n&e"}[name], nil
	}}}
	for text, want := range map[string]string{
		"https://a.example/x":                                  "https://a.example/x",
		"https://a.example/${{ secrets.HOOK }}":                "https://a.example/T0/B1/x%20y",
		"https://a.example/${{secrets.BAD}}/z":                 "https://a.example/a%3Fb%23c@d%0A&e/z",
		"https://a.example/p?k=${{ secrets.BAD }}&l=1":         "https://a.example/p?k=a%3Fb%23c%40d%0A%26e&l=1",
		"https://a.example/${{ secrets.HOOK }}?${{secrets.K}}": "https://a.example/T0/B1/x%20y?",
		"https://a.example/${{ secrets.MISSING }}":             "",
		"https://a.example/?${{ secrets.MISSING }}":            "",
		"https://a.example/${{ other.HOOK }}":                  "",
	} {
		got, err := s.fill(nil, &compute.Callback{URL: text})
		if (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%s is filled to %q, %v", text, got, err)
		}
	}
}
