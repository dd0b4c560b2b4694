package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/fsm/command"
	"berth/node/statetest"
)

// TestDeadHostDelaysNobody has five callbacks go to a host that never answers and one to a
// host that does. That one is delivered before the first try of the others is over. Once the
// dead host has failed five times it is left alone for its pause, and then tried once.
func TestDeadHostDelaysNobody(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close() // Only its certificate is used, which is for example.com.
	cas := x509.NewCertPool()
	cas.AddCert(server.Certificate())
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates}
	synctest.Test(t, func(t *testing.T) { checkDeadHost(t, cas, config) })
}

func checkDeadHost(t *testing.T, cas *x509.CertPool, config *tls.Config) {
	const dead, live = "example.com:1", "example.com:2"
	begin, state := time.Now(), statetest.New(t)
	var urls []string
	for n := range failuresToOpen {
		urls = append(urls, fmt.Sprintf("https://%s/%d", dead, n))
	}
	id := endedWithCallback(state, append(urls, "https://"+live+"/")...)
	cfg := newSender(cas, func() time.Time { return time.UnixMilli(1_800_000_001_000).Add(time.Since(begin)) }).cfg
	cfg.View, cfg.Changed = state.Machine.View, state.Machine.Changed
	cfg.Wait = func(context.Context, uint64) error { return nil }
	var mu sync.Mutex
	var failed, tried []time.Duration // When tries of the dead host ended, and when they began.
	var delivered []time.Duration
	cfg.Propose = func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range cmd.(command.RecordDeliveries).Deliveries {
			if d.Delivered {
				delivered = append(delivered, time.Since(begin))
				continue
			}
			failed = append(failed, time.Since(begin))
		}
		return state.Must(cmd), state.Index, nil
	}
	s := New(cfg)
	s.client.Transport.(*http.Transport).DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
		here, there := net.Pipe()
		if address == dead {
			mu.Lock()
			tried = append(tried, time.Since(begin))
			mu.Unlock()
		}
		go func() {
			defer there.Close()
			conn := readRequest(there, config)
			if conn == nil {
				return
			}
			if address == live {
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			drain(conn)
		}()
		return here, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*openFor+3*totalTimeout)
	defer cancel()
	_ = s.Lead(ctx, 1)
	if len(delivered) != 1 || delivered[0] >= totalTimeout || len(failed) < failuresToOpen {
		t.Fatalf("the live host got its callback after %v, and the dead one failed after %v", delivered, failed)
	}
	if len(tried) <= failuresToOpen || tried[hostInFlight-1] != tried[0] || tried[hostInFlight] != failed[0] {
		t.Errorf("tries of the dead host began after %v and ended after %v", tried, failed)
	}
	probes := 0
	for i, at := range tried {
		before, last := 0, time.Duration(0)
		for _, end := range failed {
			if end <= at {
				before, last = before+1, end
			}
		}
		if before < failuresToOpen {
			continue
		}
		if probes++; at < last+openFor || tried[i-1]+totalTimeout > at {
			t.Errorf("after %d failures, the last one after %v, it is tried after %v, and before that after %v", before, last, at, tried[i-1])
		}
	}
	if probes == 0 {
		t.Errorf("it is not tried again: %v, after failures %v", tried, failed)
	}
	all := state.Machine.View().CallbacksOf(id)
	if c := all[failuresToOpen]; c.Tries != 1 || c.Pending() || !strings.HasSuffix(c.URL, live+"/") {
		t.Errorf("kept is %+v", c)
	}
}
