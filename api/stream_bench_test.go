package api_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"berth/api/handler"
	"berth/compute"
	berth "berth/sdk/go"
)

// batches are the output of an execution as nodes read it, again and again.
type batches struct {
	*fakeLogs
	lines []handler.Line
	times int
}

// Follow hands on all batches.
func (b *batches) Follow(_ context.Context, _ compute.ExecutionID, after uint64, fn func([]handler.Line) error) error {
	lines := make([]handler.Line, len(b.lines))
	for n := range b.times {
		copy(lines, b.lines)
		for i := range lines {
			lines[i].Seq = after + uint64(n*len(lines)+i+1)
		}
		if err := fn(lines); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkStream has a client follow 8 MiB of output over TCP, and another read the bytes alone.
func BenchmarkStream(b *testing.B) {
	out := &batches{times: 256}
	for range 256 {
		out.lines = append(out.lines, handler.Line{Stream: "stdout", At: compute.InstantOf(begin), Text: bytes.Repeat([]byte("x"), 127)})
	}
	size := int64(out.times * len(out.lines) * 128)
	w := newWorld(b, func(cfg *handler.Config) {
		out.fakeLogs = cfg.Logs.(*fakeLogs) //nolint:forcetypeassert // It is.
		cfg.Logs = out
	})
	started := w.startStream()
	w.place(started.ExecutionID, 1)
	w.begun(started.ExecutionID)
	w.ended(started.ExecutionID, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { _ = w.server.Serve(ctx, l) }()
	url := "http://" + l.Addr().String()
	b.Run("bytes", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			resp, err := http.Get(url + streamPath(started))
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, bufio.NewReaderSize(resp.Body, 64<<10))
			if err != nil || n < size || resp.Body.Close() != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("events", func(b *testing.B) {
		c, err := berth.New(berth.Config{Addrs: []string{url}, Token: w.adaKey})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			n := int64(0)
			for event, err := range c.Stream(b.Context(), started.ExecutionID.String(), 0) {
				if err != nil {
					b.Fatal(err)
				}
				n += int64(len(event.Content))
			}
			if n != size {
				b.Fatal(n)
			}
		}
	})
}
