package router_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
	"berth/node/router"
)

// events answers by a stream of so many events with a pause in between.
func events(n int, pause time.Duration) func(byte, http.ResponseWriter, *http.Request) {
	return func(_ byte, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for i := range n {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"}}]}\n\n", i)
			_ = flush.Flush()
			if pause > 0 {
				time.Sleep(pause) //nolint:forbidigo // As an engine takes.
			}
		}
	}
}

// mustHop returns a dialer by which connections to a replica pass another node, over TLS.
func mustHop(tb testing.TB, dial router.Dial) router.Dial {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &rpc.Server{
		Codec: rpc.NewCodec(), Logger: slog.New(slog.DiscardHandler), Allow: func(rpc.Peer, string) error { return nil },
	}
	var to router.Replica
	server.HandleStream("dial", func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
		port, err := dial(ctx, to)
		if err != nil {
			return err
		}
		defer port.Close()
		if err := stream.Accept(nil); err != nil {
			return err
		}
		shut := sync.OnceFunc(func() {
			port.Close()
			stream.Close()
		})
		defer context.AfterFunc(ctx, shut)()
		var group sync.WaitGroup
		for _, way := range []struct {
			to   io.Writer
			from io.Reader
		}{{port, stream}, {stream, port}} {
			group.Go(func() {
				defer shut()
				_, _ = io.Copy(struct{ io.Writer }{way.to}, struct{ io.Reader }{way.from})
			})
		}
		group.Wait()
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		conn := tls.Server(transport.NewCorked(raw), &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		})
		_ = server.ServeConn(ctx, conn, rpc.Peer{ID: compute.NodeID{UUID: compute.UUID{7}}})
	})
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	client, err := rpc.NewClient(tls.Client(transport.NewCorked(raw), &tls.Config{InsecureSkipVerify: true}),
		rpc.NewCodec(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		client.Close()
		cancel()
		l.Close()
		wg.Wait()
	})
	return func(_ context.Context, at router.Replica) (net.Conn, error) {
		to = at
		_, stream, err := client.Open(context.Background(), "dial", nil)
		if err != nil {
			return nil, err
		}
		return hopConn{stream}, nil
	}
}

type hopConn struct{ io.ReadWriteCloser }

func (hopConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (hopConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (hopConn) SetDeadline(time.Time) error      { return nil }
func (hopConn) SetReadDeadline(time.Time) error  { return nil }
func (hopConn) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkInfer asks a replica on this node, and one on another node, for short answers.
func BenchmarkInfer(b *testing.B) {
	for _, n := range []int{1, 100} {
		for _, way := range []string{"own", "hop"} {
			b.Run(fmt.Sprintf("%s/%d", way, n), func(b *testing.B) {
				f := newFleetB(b, way, events(n, 0))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					f.read(b)
				}
			})
		}
	}
}

func newFleetB(b *testing.B, way string, handle func(byte, http.ResponseWriter, *http.Request)) *fleet {
	var f *fleet
	b.Helper()
	f = newFleet(b, handle)
	if way == "hop" {
		f.Router = router.New(compute.NodeID{}, mustHop(b, f.dial), time.Now)
		b.Cleanup(func() { _ = f.Router.Close() })
	}
	return f
}

func (f *fleet) read(tb testing.TB) time.Duration {
	view := f.Machine.View()
	service, _ := view.AnyExecution(f.id)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/v1/completions", nil)
	if err != nil {
		tb.Error(err)
		return 0
	}
	answer, err := f.Infer(view, service, req, []byte(`{"model":"x"}`), 0, new(int))
	if err != nil {
		tb.Error(err)
		return 0
	}
	took := time.Since(begun)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return took
}

// BenchmarkFirst measures when the first event of 64 streams comes.
func BenchmarkFirst(b *testing.B) {
	for _, way := range []string{"own", "hop"} {
		b.Run(way, func(b *testing.B) {
			f := newFleetB(b, way, events(10, 20*time.Millisecond))
			for range b.N {
				var mu sync.Mutex
				var all, cold []time.Duration
				var wg sync.WaitGroup
				end := time.Now().Add(3 * time.Second)
				for i := range 64 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 200 * time.Millisecond / 64) //nolint:forbidigo // Starts are spread.
						for n := 0; time.Now().Before(end); n++ {
							d := f.read(b)
							mu.Lock()
							if n == 0 {
								cold = append(cold, d)
							} else {
								all = append(all, d)
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				slices.Sort(all)
				slices.Sort(cold)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
				b.ReportMetric(float64(cold[len(cold)/2].Microseconds()), "cold-p50-us")
				b.ReportMetric(float64(cold[len(cold)-1].Microseconds()), "cold-max-us")
			}
		})
	}
}
