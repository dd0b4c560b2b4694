package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"berth/compute"
)

// bodyOf returns a body of some data that is written in two pieces, and what its copy ended with.
func bodyOf(data []byte) (*body, context.Context, *error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := new(error)
	return &body{end: cancel, copy: func(w io.Writer) (int64, error) {
		to := bodyWriter{Writer: w}
		for _, piece := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
			if _, *ended = to.Write(piece); *ended != nil {
				break
			}
		}
		return to.n, *ended
	}}, ctx, ended
}

// plainWriter has no method but Write, and fails at last.
type plainWriter struct {
	pieces [][]byte
	fail   bool
}

func (w *plainWriter) Write(p []byte) (int, error) {
	if w.fail {
		return 0, errors.New("the client is gone")
	}
	w.pieces = append(w.pieces, bytes.Clone(p))
	return len(p), nil
}

// TestBodies holds that a body is written as it comes, in as many pieces, that it can be
// read instead, and that either ends what makes it.
func TestBodies(t *testing.T) {
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data) // It never fails.
	b, ctx, _ := bodyOf(data)
	var w plainWriter
	if n, err := io.Copy(&w, b); err != nil || n != int64(len(data)) || len(w.pieces) != 2 ||
		!bytes.Equal(bytes.Join(w.pieces, nil), data) {
		t.Errorf("%d bytes came in %d pieces, %v", n, len(w.pieces), err)
	}
	if err := b.Close(); err != nil || ctx.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	b, ctx, _ = bodyOf(data)
	if err := iotest.TestReader(b, data); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil || ctx.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	b, _, _ = bodyOf(data)
	first := make([]byte, 100)
	if _, err := io.ReadFull(b, first); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	if _, err := b.WriteTo(&rest); err != nil || !bytes.Equal(slices.Concat(first, rest.Bytes()), data) {
		t.Errorf("%d bytes came behind the first, %v", rest.Len(), err)
	}
	b, _, ended := bodyOf(data)
	if n, err := b.WriteTo(&plainWriter{fail: true}); err == nil || n != 0 || *ended == nil {
		t.Errorf("%d bytes were written to nobody, %v", n, err)
	}
	_ = b.Close()
}

// served takes connections.
type served chan net.Conn

func (s served) ServeConn(conn net.Conn) error {
	s <- conn
	_, err := io.Copy(conn, conn)
	return err
}

// TestConnectionsAreServedDirectly holds that no socket is between a connection and the server
// of requests, in either direction.
func TestConnectionsAreServedDirectly(t *testing.T) {
	g, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	conns := make(served, 1)
	g.conns = conns
	close(g.ready)
	client, server := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.ServeConn(ctx, server) }()
	if got := <-conns; got.(*timed).Conn != server {
		t.Errorf("it serves %v", got)
	}
	text := bytes.Repeat([]byte("text"), timedPiece/2)
	go func() { _, _ = client.Write(text) }() // The answer shows whether it worked.
	got := make([]byte, len(text))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("it answers with other bytes, %v", err)
	}
	cancel()
	<-ended //nolint:errcheck // Any error is the end of the connection.
}

// refuser answers each connection without reading a body.
type refuser struct{}

func (refuser) ServeConn(conn net.Conn) error {
	if _, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, 4<<10))); err != nil {
		return err
	}
	_, err := io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	return errors.Join(err, conn.Close())
}

// TestRefusedUploadsAreAnswered has uploads refused before they are sent: clients read why, on
// sockets, on connections of this node, and through a worker.
func TestRefusedUploadsAreAnswered(t *testing.T) {
	g, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.conns = refuser{}
	close(g.ready)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served sync.WaitGroup
	defer served.Wait()
	defer cancel()
	listen := func(network, address string) func(context.Context, string, string) (net.Conn, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() { _ = g.Serve(ctx, l) })
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		}
	}
	relayed := func(context.Context, string, string) (net.Conn, error) {
		client, worker, err := connected()
		if err != nil {
			return nil, err
		}
		stream, server, err := connected()
		if err != nil {
			return nil, err
		}
		served.Go(func() { Pipe(ctx, worker, struct{ io.ReadWriteCloser }{stream}) })
		served.Go(func() { _ = g.ServeConn(ctx, struct{ io.ReadWriteCloser }{server}) })
		return client, nil
	}
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"tcp": listen("tcp", "127.0.0.1:0"), "socket": listen("unix", filepath.Join(t.TempDir(), "s3")), "relayed": relayed,
		"own": func(ctx context.Context, _, _ string) (net.Conn, error) { return g.Dial(ctx) },
	} {
		transport := &http.Transport{DialContext: dial}
		for range 20 {
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://s3/bucket/key", bytes.NewReader(make([]byte, 8<<20)))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusForbidden || string(text) != "no" {
				t.Errorf("%s: %s %q, %v", name, resp.Status, text, err)
			}
		}
	}
}

// TestServeAndStream holds that requests are answered on connections of a listener and on
// streams that are none.
func TestServeAndStream(t *testing.T) {
	g, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	go func() { ended <- g.Serve(ctx, l) }()
	stream := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { _ = g.ServeConn(ctx, struct{ io.ReadWriteCloser }{server}) }()
		return client, nil
	}
	for name, transport := range map[string]*http.Transport{"listener": {}, "stream": {DialContext: stream}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/bucket/key", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "AccessDenied") {
			t.Errorf("%s: %s %q, %v", name, resp.Status, text, err)
		}
		transport.CloseIdleConnections()
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// lingering takes time to end after its connection.
type lingering struct{ gone, release chan struct{} }

func (l lingering) ServeConn(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	close(l.gone)
	<-l.release
	return err
}

// TestDialedConnectionsEndWithRun holds that Run ends the connections of this node, waits for
// them, and that there are no others afterwards.
func TestDialedConnectionsEndWithRun(t *testing.T) {
	g, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-g.ready
	slow := lingering{make(chan struct{}), make(chan struct{})}
	g.conns = slow
	conn, err := g.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	<-slow.gone
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection of a gateway that has ended reads %d bytes, %v", n, err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended before its connection: %v", err)
	case <-time.After(500 * time.Millisecond): // Otherwise it ends in the next 100 ms.
	}
	close(slow.release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if late, err := g.Dial(t.Context()); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a gateway that has ended is reached: %v, %v", late, err)
	}
}

// cut is a connection that ends in a way of its own.
type cut struct{ net.Conn }

func (cut) SetReadDeadline(time.Time) error { return nil }

func (cut) Read(p []byte) (int, error) { return copy(p, "ab"), os.ErrDeadlineExceeded }

// TestCutConnections holds that a client which sends nothing more, or is gone, has cut its
// request: no failure of the server.
func TestCutConnections(t *testing.T) {
	if n, err := (&timed{Conn: cut{}}).Read(make([]byte, 5)); n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
