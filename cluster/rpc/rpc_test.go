package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
)

// mustConnect serves s and returns a client and the raw connection under it.
func mustConnect(t testing.TB, s *rpc.Server, peer rpc.Peer) (*rpc.Client, net.Conn) {
	t.Helper()
	conn := mustServe(t, s, peer)
	client, err := rpc.NewClient(conn, rpc.NewCodec(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, conn
}

func mustServe(t testing.TB, s *rpc.Server, peer rpc.Peer) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.ServeConn(ctx, served, peer) //nolint:errcheck // Tests break their connections.
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return conn
}

func newServer() *rpc.Server {
	return &rpc.Server{
		Codec:  rpc.NewCodec(),
		Logger: slog.New(slog.DiscardHandler),
		Allow:  func(rpc.Peer, string) error { return nil },
	}
}

func somebody() rpc.Peer { return rpc.Peer{ID: compute.NodeID{UUID: compute.UUID{7}}} }

func TestCall(t *testing.T) {
	s := newServer()
	s.Handle("echo", func(_ context.Context, peer rpc.Peer, req []byte) ([]byte, error) {
		if peer != somebody() {
			t.Errorf("called by %+v", peer)
		}
		return req, nil
	})
	client, _ := mustConnect(t, s, somebody())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			want := bytes.Repeat([]byte{byte(i)}, i*1000)
			got, err := client.Call(t.Context(), "echo", want)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("call %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}

func TestErrorsTravel(t *testing.T) {
	s := newServer()
	refusal := compute.Errorf(compute.CodeConflict, "Not so.").Named("not_so").Retry(3 * time.Second)
	s.Handle("refuse", func(context.Context, rpc.Peer, []byte) ([]byte, error) { return nil, refusal })
	s.Handle("fail", func(context.Context, rpc.Peer, []byte) ([]byte, error) { return nil, errors.New("the disk is full") })
	client, _ := mustConnect(t, s, somebody())
	_, err := client.Call(t.Context(), "refuse", nil)
	if e, ok := errors.AsType[*compute.Error](err); !ok || *e != *refusal {
		t.Errorf("the refusal came as %#v", err)
	}
	_, err = client.Call(t.Context(), "fail", nil)
	if compute.CodeOf(err) != compute.CodeInternal || compute.MessageOf(err) != "Internal error." || !strings.Contains(err.Error(), "disk") {
		t.Errorf("the failure came as %v", err)
	}
	_, err = client.Call(t.Context(), "nothing", nil)
	if compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("an unknown method gives %v", err)
	}
}

func TestAllowIsAsked(t *testing.T) {
	s := newServer()
	s.Allow = func(peer rpc.Peer, method string) error {
		if peer.Anonymous() {
			return compute.Errorf(compute.CodeUnauthenticated, "No.")
		}
		return nil
	}
	called := false
	s.Handle("secret", func(context.Context, rpc.Peer, []byte) ([]byte, error) { called = true; return nil, nil })
	s.HandleStream("stream", func(context.Context, rpc.Peer, []byte, *rpc.Stream) error { called = true; return nil })
	client, _ := mustConnect(t, s, rpc.Peer{})
	if _, err := client.Call(t.Context(), "secret", nil); compute.CodeOf(err) != compute.CodeUnauthenticated || called {
		t.Errorf("got %v, called %v", err, called)
	}
	if _, _, err := client.Open(t.Context(), "stream", nil); compute.CodeOf(err) != compute.CodeUnauthenticated || called {
		t.Errorf("got %v, called %v", err, called)
	}
}

func TestDeadlines(t *testing.T) {
	s := newServer()
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	s.Handle("hang", func(ctx context.Context, _ rpc.Peer, _ []byte) ([]byte, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	client, _ := mustConnect(t, s, somebody())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // Enough to arrive.
	defer cancel()
	_, err := client.Call(ctx, "hang", nil) // Either side may notice first.
	if !errors.Is(err, context.DeadlineExceeded) && compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("the caller sees %v", err)
	}
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the handler sees %v", err)
	}
	<-begun
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := client.Call(ctx, "hang", nil); !errors.Is(err, context.Canceled) || errors.Is(err, rpc.ErrNotSent) {
		t.Errorf("the caller who gave up sees %v", err)
	}
	client.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) { // It ends with its connection.
		t.Errorf("the handler whose connection ended sees %v", err)
	}
	if _, err := client.Call(t.Context(), "hang", nil); !errors.Is(err, rpc.ErrNotSent) {
		t.Errorf("on a closed connection: %v", err)
	}
}

func TestBrokenConnectionLeavesTheOutcomeOpen(t *testing.T) {
	s := newServer()
	begun := make(chan struct{})
	s.Handle("hang", func(ctx context.Context, _ rpc.Peer, _ []byte) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	client, conn := mustConnect(t, s, somebody())
	go func() {
		<-begun
		conn.Close()
	}()
	_, err := client.Call(t.Context(), "hang", nil)
	if err == nil || errors.Is(err, rpc.ErrNotSent) || compute.CodeOf(err) != compute.CodeInternal {
		t.Errorf("got %v", err)
	}
}

func TestLimits(t *testing.T) {
	s := newServer()
	s.Handle("size", func(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) {
		return make([]byte, binary.BigEndian.Uint32(req)), nil
	})
	client, _ := mustConnect(t, s, somebody())
	if _, err := client.Call(t.Context(), "size", make([]byte, rpc.MaxRequest)); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("a request over the limit: %v", err)
	}
	ask := binary.BigEndian.AppendUint32(nil, 20<<20)
	if got, err := client.Call(t.Context(), "size", ask); err != nil || len(got) != 20<<20 {
		t.Errorf("a large answer: %d bytes, %v", len(got), err)
	}
}

// TestStrangersTakeLittleMemory opens 200 streams that announce 9 MiB each and send
// four bytes. A peer with a certificate costs as much memory as it sends. One without
// gets one stream, and its requests are small.
func TestStrangersTakeLittleMemory(t *testing.T) {
	for name, peer := range map[string]rpc.Peer{"stranger": {}, "node": somebody()} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.Handle("echo", func(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) { return req, nil })
			client, _ := mustConnect(t, s, peer)
			if _, err := client.Call(t.Context(), "echo", []byte("first")); err != nil {
				t.Fatal(err)
			}
			before := heap()
			for range 200 {
				stream, err := client.Raw()
				if err != nil {
					break // The other side takes no more.
				}
				defer stream.Close()
				_, _ = stream.Write(binary.BigEndian.AppendUint32(nil, rpc.MaxRequest))
			}
			time.Sleep(200 * time.Millisecond) //nolint:forbidigo // Nothing may happen meanwhile.
			if grown := int64(heap()) - int64(before); grown > 32<<20 {
				t.Errorf("the heap has grown by %d MiB", grown>>20)
			}
		})
	}
	s := newServer()
	s.Handle("echo", func(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) { return req, nil })
	client, _ := mustConnect(t, s, rpc.Peer{})
	if _, err := client.Call(t.Context(), "echo", make([]byte, rpc.MaxJoin)); err == nil {
		t.Error("a stranger's large request was answered")
	}
}

// heap returns the bytes that live on the heap.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestGarbageEndsTheStreamOnly(t *testing.T) {
	s := newServer()
	s.Handle("echo", func(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) { return req, nil })
	client, _ := mustConnect(t, s, somebody())
	for _, garbage := range [][]byte{
		{0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 4, 1, 2, 3, 4}, {0, 0, 0, 1, 0xa1}, {0, 0, 0, 2, 0xbf, 0xff},
	} {
		stream, err := client.Raw()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Write(garbage); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(stream); len(rest) > 0 {
			t.Errorf("% x is answered with % x, %v", garbage, rest, err)
		}
		stream.Close()
	}
	if got, err := client.Call(t.Context(), "echo", []byte("still there")); err != nil || string(got) != "still there" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestStreams(t *testing.T) {
	s := newServer()
	s.HandleStream("upper", func(_ context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream) error {
		if string(req) == "refuse" {
			return compute.Errorf(compute.CodeNotFound, "No such stream.")
		}
		if err := stream.Accept([]byte("hello " + string(req))); err != nil {
			return err
		}
		data, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		_, err = stream.Write(bytes.ToUpper(data))
		return err
	})
	s.HandleStream("endless", func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
		if err := stream.Accept(nil); err != nil {
			return err
		}
		for {
			if _, err := stream.Write(make([]byte, 1024)); err != nil {
				return err
			}
		}
	})
	client, _ := mustConnect(t, s, somebody())
	answer, stream, err := client.Open(t.Context(), "upper", []byte("you"))
	if err != nil || string(answer) != "hello you" {
		t.Fatalf("opened with %q, %v", answer, err)
	}
	text := strings.Repeat("large ", 1<<18)
	if _, err := io.WriteString(stream, text); err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil { // This direction only.
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stream); err != nil || string(got) != strings.ToUpper(text) {
		t.Errorf("got %d bytes back, %v", len(got), err)
	}
	if _, _, err := client.Open(t.Context(), "upper", []byte("refuse")); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a refused stream: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, stream, err = client.Open(ctx, "endless", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := io.Copy(io.Discard, stream); err == nil {
		t.Error("the stream outlived its context")
	}
}

// TestUntilClosed has callers hang up on handlers that write nothing, or wait for the
// caller to read. Both end. A handler that returns by itself does not wait for its
// caller.
func TestUntilClosed(t *testing.T) {
	s := newServer()
	ended := make(chan error, 1)
	for name, wait := range map[string]func(context.Context, *rpc.Stream) error{
		"quiet": func(ctx context.Context, _ *rpc.Stream) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"writing": func(ctx context.Context, stream *rpc.Stream) error {
			for ctx.Err() == nil {
				if _, err := stream.Write(make([]byte, 1024)); err != nil {
					return err
				}
			}
			return ctx.Err()
		},
		"brief": func(context.Context, *rpc.Stream) error { return nil },
	} {
		s.HandleStream(name, func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
			if err := stream.Accept(nil); err != nil {
				return err
			}
			err := wait(stream.UntilClosed(ctx, nil), stream)
			ended <- err
			return err
		})
	}
	client, _ := mustConnect(t, s, somebody())
	for _, name := range []string{"quiet", "writing"} {
		_, stream, err := client.Open(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		stream.Close()
		if err := <-ended; err == nil {
			t.Errorf("%s: it ended without an error", name)
		}
	}
	_, stream, err := client.Open(t.Context(), "brief", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if rest, err := io.ReadAll(stream); len(rest) > 0 || err != nil {
		t.Errorf("after its end it sends %q, %v", rest, err)
	}
}

// TestStrangersAreSentAway sends bytes of a peer without a certificate: streams that
// it never closes, calls that mean nothing, and data without an end. The connection
// ends soon each time.
func TestStrangersAreSentAway(t *testing.T) {
	const window, tooMuch = 256 << 10, 16 << 20 // The kernel has buffers, too.
	frame := func(kind, flags byte, stream, length uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0, kind, 0, flags}, stream), length)
	}
	for name, piece := range map[string]func(stream uint32) []byte{
		"whole windows": func(stream uint32) []byte {
			return append(append(frame(1, 1, stream, 0), frame(0, 0, stream, window)...), append([]byte{0, 0, 0, 1}, make([]byte, window-4)...)...)
		},
		"calls that mean nothing": func(stream uint32) []byte {
			return append(append(frame(1, 1, stream, 0), frame(0, 0, stream, 5)...), 0, 0, 0, 1, 0xff)
		},
		"one stream and no end": func(uint32) []byte { return append(frame(0, 0, 1, 1000), make([]byte, 1000)...) },
	} {
		conn := mustServe(t, newServer(), rpc.Peer{})
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		sent := make(chan int, 1)
		go func() {
			total, err := conn.Write(frame(1, 1, 1, 0))
			for stream := uint32(3); err == nil && total < tooMuch; stream += 2 {
				var n int
				n, err = conn.Write(piece(stream))
				total += n
			}
			sent <- total
		}()
		_, err := io.Copy(io.Discard, conn)
		if total := <-sent; total >= tooMuch {
			t.Errorf("%s: the server has taken %d bytes, then %v", name, total, err)
		}
		conn.Close()
	}
}

func TestMethodsAreRegisteredOnce(t *testing.T) {
	s := newServer()
	handler := func(context.Context, rpc.Peer, []byte) ([]byte, error) { return nil, nil }
	s.Handle("m", handler)
	defer func() {
		if recover() == nil {
			t.Error("a second handler was accepted")
		}
	}()
	s.HandleStream("m", func(context.Context, rpc.Peer, []byte, *rpc.Stream) error { return nil })
}

func FuzzUnmarshal(f *testing.F) {
	codec := rpc.NewCodec()
	f.Add(codec.Marshal(compute.Inventory{Version: 3, GPUs: []compute.GPU{{ID: "a"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var inv compute.Inventory
		if err := codec.Unmarshal(data, &inv); err != nil {
			return
		}
		var again compute.Inventory
		if err := codec.Unmarshal(codec.Marshal(inv), &again); err != nil {
			t.Errorf("what was decoded cannot be decoded again: %v", err)
		}
	})
}

// TestServersHaveMoreStreams opens as many streams as requests to models may need between two
// servers. A worker has fewer. The next one waits until another one ends.
func TestServersHaveMoreStreams(t *testing.T) {
	const least, most = 1024, 2560 // Workers have least, servers most.
	for role, want := range map[compute.Role]int{compute.RoleServer: most, compute.RoleWorker: least} {
		s := newServer()
		entered := make(chan bool, most+1)
		s.HandleStream("hold", func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
			entered <- true
			if err := stream.Accept(nil); err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { stream.Close() })()
			_, _ = io.Copy(io.Discard, stream)
			return nil
		})
		peer := somebody()
		peer.Role = role
		client, _ := mustConnect(t, s, peer)
		var first io.Closer
		for n := range want {
			_, stream, err := client.Open(t.Context(), "hold", nil)
			if err != nil {
				t.Fatalf("%v: stream %d: %v", role, n, err)
			}
			if n == 0 {
				first = stream
			}
			<-entered
		}
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, _, err := client.Open(soon, "hold", nil); err == nil {
			t.Errorf("%v: there is no limit of %d streams", role, want)
		}
		cancel()
		first.Close()
		if _, _, err := client.Open(t.Context(), "hold", nil); err != nil {
			t.Errorf("%v: after a stream has ended: %v", role, err)
		}
	}
}
