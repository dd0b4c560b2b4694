package logs

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// held is what a receiver has been sent and has not read.
type held struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (h *held) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.data.Write(p)
}

func (h *held) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.data.Len()
}

// TestReceiversHoldLittle has receivers read nothing of a flood: all but a few are sent
// little. One that reads gets all, also while the others do not.
func TestReceiversHoldLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 1)
		w := c.placeLimited(t, dirs, 1, 1, Limits{BytesPerSecond: 1 << 30})
		const total = 20_000
		mustWrite(t, w, Stdout, strings.Repeat(strings.Repeat("x", 60)+"\n", total))
		mustEnd(t, w, Final{})
		c.finish(&Final{})
		ctx, cancel := context.WithCancel(t.Context())
		q := request{mode: modeFollow, of: attempt{testExecution(), 1}, limit: understandsLines | acknowledges}
		var all []*held
		var group sync.WaitGroup
		for range largeWindows + 100 {
			h := new(held)
			all = append(all, h)
			group.Go(func() {
				if err := c.node(1).Serve(ctx, q.encode(), h, NewWindow()); err == nil {
					t.Error("an answer has an end that nobody read")
				}
			})
		}
		synctest.Wait()
		large := 0
		for _, h := range all {
			n := h.len()
			if n > largeWindow || n < leastPiece {
				t.Fatalf("a receiver holds %d bytes", n)
			}
			if n > smallWindow {
				large++
			}
		}
		if large > largeWindows {
			t.Errorf("%d receivers hold much, want %d", large, largeWindows)
		}
		c.nodes[nodeID(2)] = NewFollower(FollowerConfig{
			Node: nodeID(2), Store: Open(t.TempDir(), nil), State: c, Peers: acking{c, nil},
		})
		if lines, _, err := collect(t.Context(), c.node(2), 0); err != nil || len(lines) != total {
			t.Errorf("got %d lines, %v", len(lines), err)
		}
		cancel()
		group.Wait()
		if n := len(c.node(1).cfg.Store.memory.windows); n != 0 {
			t.Errorf("%d large windows are left", n)
		}
	})
}

// acking are Peers whose streams go both ways.
type acking struct {
	*cluster

	streams *atomic.Int64 // How many there were; nil if nobody asks.
}

type twoWay struct {
	io.ReadCloser

	window *Window
}

func (s twoWay) Write(p []byte) (int, error) {
	s.window.Received(p[:1]) // Cut anywhere.
	s.window.Received(p[1:])
	return len(p), nil
}

func (a acking) Stream(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error) {
	if a.streams != nil {
		a.streams.Add(1)
	}
	r, w := io.Pipe()
	window := NewWindow()
	go func() { w.CloseWithError(a.nodes[node].Serve(ctx, req, w, window)) }()
	return twoWay{r, window}, nil
}

// TestSmallWindowsSuffice follows output through small windows, which its lines do not fit:
// neither side waits for the other.
func TestSmallWindowsSuffice(t *testing.T) {
	for _, length := range []int{60, 1500, 5000, 20_000, 60_000} {
		for _, large := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, dirs := newCluster(t, 1)
				w := c.placeLimited(t, dirs, 1, 1, Limits{BytesPerSecond: 1 << 30})
				total := 1 << 20 / length
				mustWrite(t, w, Stdout, strings.Repeat(strings.Repeat("x", length)+"\n", total))
				mustEnd(t, w, Final{})
				c.finish(&Final{})
				for range largeWindows {
					c.node(1).cfg.Store.memory.windows <- struct{}{}
				}
				var streams atomic.Int64
				f := NewFollower(FollowerConfig{
					Node: nodeID(2), Store: Open(t.TempDir(), nil), State: c, Peers: acking{c, &streams},
				})
				for range largeBatches {
					if !large {
						f.cfg.Store.memory.large <- struct{}{}
					}
				}
				c.nodes[nodeID(2)] = f
				lines, _, err := collect(t.Context(), f, 0)
				if err != nil || len(lines) != total || streams.Load() != 1 {
					t.Errorf("lines of %d, large buffers %v: got %d of %d lines over %d streams, %v",
						length, large, len(lines), total, streams.Load(), err)
				}
			})
		}
	}
}

// TestWindow takes and gives back bytes.
func TestWindow(t *testing.T) {
	w := NewWindow()
	w.memory = newMemory()
	for range largeWindows {
		w.memory.windows <- struct{}{}
	}
	if n := w.try(100); n != 100 {
		t.Errorf("took %d", n)
	}
	if n := w.try(1 << 20); n != smallWindow-100 || w.large {
		t.Errorf("took %d, large %v", n, w.large)
	}
	if n := w.try(1); n != 0 {
		t.Errorf("took %d of a full window", n)
	}
	w.Received(binary.BigEndian.AppendUint32(nil, leastPiece-1))
	if n := w.try(1 << 20); n != 0 {
		t.Errorf("took a piece of %d", n)
	}
	<-w.memory.windows
	if n := w.try(1 << 20); n != largeWindow-smallWindow+leastPiece-1 || !w.large {
		t.Errorf("took %d, large %v", n, w.large)
	}
	w.Received(binary.BigEndian.AppendUint32(nil, 1<<31))
	if w.large || len(w.memory.windows) != largeWindows-1 || w.flying != 0 {
		t.Errorf("after all was read: %+v", w)
	}
}
