package callback

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
)

// slowTries are what a receiver does at each try, and how long the try takes then.
var slowTries = []struct {
	name  string
	serve func(conn net.Conn, config *tls.Config) // Nil: its name is never resolved.
	takes time.Duration
	says  string
}{
	{"no connection", nil, connectTimeout, "timeout"},
	{"no handshake", func(conn net.Conn, _ *tls.Config) { drain(conn) }, connectTimeout, "TLS handshake timeout"},
	{"no answer", func(conn net.Conn, config *tls.Config) {
		if conn := readRequest(conn, config); conn != nil {
			drain(conn)
		}
	}, totalTimeout, "exceeded"},
	{"an answer without an end", func(conn net.Conn, config *tls.Config) {
		if conn := readRequest(conn, config); conn != nil {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin")
			drain(conn)
		}
	}, totalTimeout, ""}, // Its status acknowledges.
}

// drain reads until the other side ends.
func drain(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// readRequest returns a connection whose request has been read, nil if there is none.
func readRequest(conn net.Conn, config *tls.Config) net.Conn {
	secure := tls.Server(conn, config)
	r, err := http.ReadRequest(bufio.NewReader(secure))
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return secure
}

// TestTimeouts sends a callback to a receiver that is slow in another way at each try. A try
// ends once 5 s have passed without a connection, or 15 s in all, and the next one follows
// after a pause.
func TestTimeouts(t *testing.T) {
	if connectTimeout != 5*time.Second || totalTimeout != 15*time.Second {
		t.Errorf("the time-outs are %v and %v", connectTimeout, totalTimeout)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close() // Only its certificate is used, which is for example.com.
	cas := x509.NewCertPool()
	cas.AddCert(server.Certificate())
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates}
	// The first look-up of a process makes what all share, outside of the bubble.
	_, _ = (&net.Resolver{PreferGo: true}).LookupHost(t.Context(), "localhost")
	synctest.Test(t, func(t *testing.T) { checkTimeouts(t, cas, config) })
}

func checkTimeouts(t *testing.T, cas *x509.CertPool, config *tls.Config) {
	begin := time.Now()
	state := statetest.New(t)
	now := func() time.Time { return time.UnixMilli(1_800_000_001_000).Add(time.Since(begin)) } // After the state's entries.
	id := endedWithCallback(state)
	s := newSender(cas, now)
	cfg := s.cfg
	cfg.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done() // The name server is not reached.
		return nil, ctx.Err()
	}}
	cfg.View, cfg.Changed = state.Machine.View, state.Machine.Changed
	cfg.Wait = func(context.Context, uint64) error { return nil }
	var took []time.Duration
	var results []compute.Delivery
	var started, ended time.Time
	cfg.Propose = func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
		ended = time.Now()
		took = append(took, ended.Sub(started))
		results = append(results, cmd.(command.RecordDeliveries).Deliveries...)
		return state.Must(cmd), state.Index, nil
	}
	s = New(cfg)
	transport := s.client.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		try := len(results)
		if started = time.Now(); try > 0 && started.Sub(ended) < Backoff(try-1, 1) { // The shortest.
			t.Errorf("try %d follows after %v", try+1, started.Sub(ended))
		}
		if try >= len(slowTries) {
			return nil, errors.New("there are more tries than expected")
		}
		if slowTries[try].serve == nil {
			return dial(ctx, network, address)
		}
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			slowTries[try].serve(there, config)
		}()
		return here, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Lead(ctx, 1)
	}()
	for state.Machine.View().CallbacksOf(id)[0].Pending() && time.Since(begin) < time.Hour {
		time.Sleep(time.Second) //nolint:forbidigo // Virtual.
		synctest.Wait()
	}
	cancel()
	<-done
	if len(results) != len(slowTries) {
		t.Fatalf("%d tries: %+v", len(results), results)
	}
	for i, try := range slowTries {
		d := results[i]
		if took[i] != try.takes || !strings.Contains(d.Error, try.says) || d.Delivered != (try.says == "") || d.NextAt.IsZero() != d.Delivered {
			t.Errorf("%s: it took %v: %+v", try.name, took[i], d)
		}
	}
	if c := state.Machine.View().CallbacksOf(id)[0]; c.Failed || c.Tries != len(slowTries) || c.Code != http.StatusOK {
		t.Errorf("kept is %+v", c)
	}
}

// TestNoTryOfAnOlderState begins with a view of a callback that has been tried since. It is
// not tried again before its pause is over.
func TestNoTryOfAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		state := statetest.New(t)
		now := func() time.Time { return time.UnixMilli(1_800_000_001_000).Add(time.Since(begin)) }
		id := endedWithCallback(state)
		before := state.Machine.View()
		c := before.CallbacksOf(id)[0]
		const pause = 10 * time.Second
		state.Must(command.RecordDeliveries{Term: 1, Deliveries: []compute.Delivery{{
			Execution: id, Number: c.Number, At: compute.InstantOf(now()), NextAt: compute.InstantOf(now().Add(pause)), Error: "refused",
		}}})
		cfg := newSender(nil, now).cfg
		looks := 0
		cfg.View = func() *fsm.View {
			if looks++; looks == 1 {
				return before
			}
			return state.Machine.View()
		}
		cfg.Changed = state.Machine.Changed
		s := New(cfg)
		var tried time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		s.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			tried = time.Since(begin)
			cancel()
			return nil, errors.New("refused")
		}
		_ = s.Lead(ctx, 1)
		if tried < pause {
			t.Errorf("it is tried again after %v", tried)
		}
	})
}

// endedWithCallback returns an execution that has ended and whose end callbacks to some URLs
// report; without any, one.
func endedWithCallback(state *statetest.State, urls ...string) compute.ExecutionID {
	if len(urls) == 0 {
		urls = []string{"https://example.com/hook"}
	}
	n, _ := state.Machine.View().Node(state.Node)
	known := *n
	known.Format = format.Newest
	state.Must(command.RegisterNode{Node: known})
	state.Must(command.SetFormat{Term: 1, Format: format.Newest})
	e := compute.Execution{
		ID: compute.ExecutionID{UUID: compute.UUID{30}}, Profile: "t4", Timeout: time.Minute, CallbackURLs: urls,
	}
	id := state.Must(command.Submit{Op: state.NextOp(), Actor: state.Actor, Execution: e}).Execution
	state.Must(command.StopExecution{Op: state.NextOp(), Actor: state.Actor, Execution: id, Stop: compute.StopHard})
	return id
}
