package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"berth/compute"
	"berth/fsm/command"
	"berth/node/statetest"
)

// TestHostileStatus has receivers answer with status lines that no command can hold. The
// others are delivered, and what became of all is recorded.
func TestHostileStatus(t *testing.T) {
	good := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer good.Close()
	cas := x509.NewCertPool()
	cas.AddCert(good.Certificate())
	urls := []string{}
	for _, text := range []string{"\xff", strings.Repeat("x", 60<<10), strings.Repeat("\xff", 60<<10)} {
		urls = append(urls, rawReceiver(t, good.TLS.Certificates, "HTTP/1.1 500 "+text+"\r\nContent-Length: 0\r\n\r\n"))
	}
	urls = append(urls, good.URL)
	begin, state := time.Now(), statetest.New(t)
	id := endedWithCallback(state, urls...)
	cfg := newSender(cas, func() time.Time { return time.UnixMilli(1_800_000_001_000).Add(time.Since(begin)) }).cfg
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.View, cfg.Changed = state.Machine.View, state.Machine.Changed
	cfg.Wait = func(context.Context, uint64) error { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recorded := 0
	cfg.Propose = func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
		if _, err := command.Encode(cmd); err != nil {
			cancel() // It was repeated for ever.
			return command.Result{}, 0, err
		}
		result := state.Must(cmd)
		for _, d := range cmd.(command.RecordDeliveries).Deliveries {
			if len(d.Error) > compute.MaxDeliveryError || !utf8.ValidString(d.Error) {
				t.Errorf("callback %d says %q", d.Number, d.Error)
			}
			if recorded++; recorded == len(urls) {
				cancel()
			}
		}
		return result, state.Index, nil
	}
	_ = New(cfg).Lead(ctx, 1)
	all := state.Machine.View().CallbacksOf(id)
	for i, c := range all {
		want, code := "the receiver answered 500 Internal Server Error", http.StatusInternalServerError
		if i == len(all)-1 {
			want, code = "", http.StatusOK
		}
		if c.Tries != 1 || c.Code != code || c.Error != want {
			t.Errorf("callback %d is %+v", i, c)
		}
	}
	if len(all) != len(urls) {
		t.Errorf("%d callbacks", len(all))
	}
}

// rawReceiver returns the URL of a receiver that answers each request with some bytes.
func rawReceiver(t *testing.T, certificates []tls.Certificate, answer string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates}
				if conn := readRequest(conn, config); conn != nil {
					fmt.Fprint(conn, answer)
					drain(conn)
				}
			}()
		}
	}()
	return "https://" + listener.Addr().String() + "/"
}

// TestRefusedResult gives the state results of which it refuses some. The others are kept,
// each once, and so are refused ones that a plain text makes acceptable.
func TestRefusedResult(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(compute.Delivery) bool
		kept   string
	}{
		"its text":  {func(d compute.Delivery) bool { return d.Error == "bad" }, "1:  2: the result cannot be recorded 3: "},
		"it itself": {func(d compute.Delivery) bool { return d.Number == 2 }, "1:  3: "},
		"none":      {func(compute.Delivery) bool { return false }, "1:  2: bad 3: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSender(nil, time.Now)
				s.cfg.Wait = func(context.Context, uint64) error { return nil }
				var kept []string
				proposals, down := 0, 2 // The cluster takes none for a while.
				s.cfg.Propose = func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
					if proposals++; proposals > 100 {
						t.Fatal("results are proposed for ever")
					}
					if down--; down >= 0 {
						if down == 0 { // Another term has begun, and ends before this one does.
							return command.Result{}, 0, compute.Errorf(compute.CodeConflict, "a newer leader").Named("stale_term")
						}
						return command.Result{}, 0, compute.Errorf(compute.CodeUnavailable, "no leader")
					}
					for _, d := range cmd.(command.RecordDeliveries).Deliveries {
						if tt.refuse(d) {
							return command.Result{}, 0, errors.New("encode command")
						}
					}
					for _, d := range cmd.(command.RecordDeliveries).Deliveries {
						kept = append(kept, fmt.Sprintf("%d: %s", d.Number, d.Error))
					}
					return command.Result{}, 1, nil
				}
				s.done, s.left = make(chan compute.Delivery, inFlight), make(chan struct{}, 1)
				for n := range 3 {
					c := compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Number: n + 1, URL: "https://a.example/"}
					if _, started, _ := s.take(&c, compute.OrgID{}, time.Now()); !started {
						t.Fatal("no place")
					}
					d := compute.Delivery{Execution: c.Execution, Number: c.Number, Delivered: true}
					if n == 1 {
						d.Delivered, d.Error = false, "bad"
					}
					s.done <- d
				}
				close(s.done)
				s.record(t.Context(), 1)
				if name == "none" && proposals != 3 {
					t.Errorf("%d proposals: results were proposed apart though nothing refused them", proposals)
				}
				if got := strings.Join(kept, " "); got != tt.kept || len(s.busy) > 0 {
					t.Errorf("kept are %q, want %q, and %d places are taken", got, tt.kept, len(s.busy))
				}
			})
		})
	}
}
