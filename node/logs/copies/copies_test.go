package copies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/node/logs"
	"berth/node/logs/copies"
)

// world is nodes whose disks are directories and whose connections are pipes.
type world struct {
	t    *testing.T
	dirs map[compute.NodeID]string

	mu sync.Mutex

	stores map[compute.NodeID]*copies.Store
	up     []compute.NodeID
	live   bool
	cut    int // Streams break after so many bytes; 0 for never.

	latency time.Duration // Time until a stream is served.
}

func nodeID(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: n}} }

var execution = compute.ExecutionID{UUID: compute.UUID{0: 9}}

// newWorld returns a world in which node 1 writes and the others keep copies.
func newWorld(t *testing.T, nodes byte) *world {
	w := &world{t: t, dirs: map[compute.NodeID]string{}, stores: map[compute.NodeID]*copies.Store{}, live: true}
	for n := range nodes {
		id := nodeID(n + 1)
		w.dirs[id] = t.TempDir()
		w.restart(id)
		if n > 0 {
			w.up = append(w.up, id)
		}
	}
	return w
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// restart opens a node's copies again.
func (w *world) restart(id compute.NodeID) {
	w.stores[id] = copies.Open(w.dirs[id], logs.Open(w.dirs[id], nil), copies.Limits{Age: time.Hour, Bytes: 1 << 30}, time.Now)
}

func (w *world) open(ctx context.Context, id compute.NodeID) (io.ReadWriteCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	here, there := net.Pipe()
	store, cut := w.stores[id], w.cut
	go func() {
		defer there.Close()
		time.Sleep(w.latency) //nolint:forbidigo // Virtual.
		_ = store.Serve(ctx, nodeID(1), &cutting{there, cut})
	}()
	return here, nil
}

// cutting breaks a connection after left bytes, if left is not 0.
type cutting struct {
	net.Conn
	left int
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.left == 0 {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	if c.left -= n; c.left <= 0 && err == nil {
		return n, errors.Join(errors.New("connection reset"), c.Conn.Close())
	}
	return n, err
}

// sender runs a Sender of node 1 until the returned function is called.
func (w *world) sender() (s *copies.Sender, stop func()) {
	s = copies.NewSender(copies.Config{
		DataDir: w.dirs[nodeID(1)], Open: w.open, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Nodes: func() []compute.NodeID {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.up
		},
		Live: func(compute.ExecutionID, uint64) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.live
		},
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	return s, func() {
		cancel()
		<-done
	}
}

// writer returns a writer of an attempt's output on node 1 with a small ring.
func (w *world) writer() *logs.Writer {
	w.t.Helper()
	writer, err := logs.Create(logs.Path(w.dirs[nodeID(1)], execution, 1), logs.Limits{
		RingBytes: 64 << 10, PacedBytes: 1 << 30, BytesPerSecond: 1 << 30, LineBytes: 1 << 10,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return writer
}

func (w *world) mustWrite(writer *logs.Writer, from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		if err := writer.Write(logs.Stdout, compute.InstantOf(time.Now()), fmt.Appendf(nil, "line %d\n", i)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// peer returns the node that copies are pushed to first, of those that are up.
func (w *world) peer() compute.NodeID { return copies.Order(execution, w.up)[0] }

// copied returns the chunks of node 1's output on a node.
func (w *world) copied(id compute.NodeID) map[string][]byte {
	return chunks(w.t, filepath.Join(w.dirs[id], "copies", nodeID(1).String(), execution.String(), "1"))
}

// lines returns the lines that a node has copied.
func (w *world) lines(id compute.NodeID) []string {
	chunks := w.copied(id)
	if len(chunks) > 1 {
		w.t.Fatalf("%d chunks are copied, whose order is not known here", len(chunks))
	}
	var lines []string
	for _, data := range chunks {
		for _, line := range regexp.MustCompile("line [0-9]+").FindAll(data, -1) {
			lines = append(lines, string(line))
		}
	}
	return lines
}

func (w *world) written() map[string][]byte {
	return chunks(w.t, filepath.Dir(logs.Path(w.dirs[nodeID(1)], execution, 1)))
}

func chunks(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, logs.SegmentName+"*"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, f := range files {
		if filepath.Ext(f) == ".copied" {
			continue
		}
		if out[filepath.Base(f)], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// mustBeCopied wants the same chunks on a node as node 1 has.
func (w *world) mustBeCopied(id compute.NodeID) {
	w.t.Helper()
	want, got := w.written(), w.copied(id)
	if len(want) != len(got) {
		w.t.Fatalf("%d chunks are copied of %d", len(got), len(want))
	}
	for name, data := range want {
		if !bytes.Equal(data, got[name]) {
			w.t.Errorf("%s has %d bytes of %d", name, len(got[name]), len(data))
		}
	}
}

// TestLiveOutputIsCopiedWithinASecond also has the ring drop chunks.
func TestLiveOutputIsCopiedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		s, stop := w.sender()
		defer stop()
		s.Track(execution, 1)
		writer := w.writer()
		for i := range 20 {
			w.mustWrite(writer, i*1000, i*1000+1000)
			time.Sleep(time.Second) //nolint:forbidigo // Virtual.
			synctest.Wait()
			w.mustBeCopied(w.peer())
			if w.stores[w.peer()].Complete(nodeID(1), execution, 1) {
				t.Fatal("the copy of live output is complete")
			}
		}
		if len(w.written()) != 16 {
			t.Errorf("the ring has %d chunks", len(w.written()))
		}
		if err := writer.Close(1, logs.Final{Status: "completed"}); err != nil {
			t.Fatal(err)
		}
		w.set(func() { w.live = false })
		time.Sleep(2 * time.Second) //nolint:forbidigo // Virtual.
		synctest.Wait()
		w.mustBeCopied(w.peer())
		if !w.stores[w.peer()].Complete(nodeID(1), execution, 1) {
			t.Error("the copy of ended output is not complete")
		}
		if other := copies.Order(execution, w.up)[1]; len(w.copied(other)) > 0 {
			t.Error("there are two copies")
		}
	})
}

// TestAtMostTwoSecondsAreAtRisk looks at a copy at different moments, at which the writer's
// machine may be lost, while lines are written steadily. The copy has the first lines, and
// lacks at most those of the last two seconds, also if its node takes a second to answer.
func TestAtMostTwoSecondsAreAtRisk(t *testing.T) {
	const every, latency = 20 * time.Millisecond, time.Second
	for moment := range 12 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3)
			if moment%2 == 1 {
				w.latency = latency
			}
			s, stop := w.sender()
			s.Track(execution, 1)
			writer := w.writer()
			lines := 200 + moment*7 // The moments are in all parts of the sender's period.
			for i := range lines {
				w.mustWrite(writer, i, i+1)
				time.Sleep(every) //nolint:forbidigo // Virtual.
			}
			synctest.Wait()
			peer := w.peer()
			kept := w.lines(peer)
			stop()
			for i, line := range kept {
				if line != fmt.Sprintf("line %d", i) {
					t.Fatalf("line %d of the copy is %q", i, line)
				}
			}
			if lost := lines - len(kept); lost < 0 || time.Duration(lost)*every > 2*time.Second || w.stores[peer].Complete(nodeID(1), execution, 1) {
				t.Errorf("of %d lines %d are copied", lines, len(kept))
			}
		})
	}
}

// TestCopyMovesToAnotherNode loses the peer, the process of the sender, connections and the
// end of a copy.
func TestCopyMovesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		first := w.peer()
		_, stop := w.sender()
		writer := w.writer()
		w.mustWrite(writer, 0, 1000)
		stop() // Before it has pushed anything.
		s, stop := w.sender()
		s.Track(execution, 1)
		time.Sleep(time.Second) //nolint:forbidigo // Virtual.
		synctest.Wait()
		w.mustBeCopied(first)

		w.set(func() { w.up = []compute.NodeID{copies.Order(execution, w.up)[1]} })
		w.mustWrite(writer, 1000, 2000)
		time.Sleep(time.Second) //nolint:forbidigo // Virtual.
		synctest.Wait()
		second := w.peer()
		w.mustBeCopied(second)
		position := func(id compute.NodeID) uint64 { return w.stores[id].Position(nodeID(1), execution, 1) }
		if first == second || position(first) == 0 || position(first) >= position(second) {
			t.Errorf("the positions are %d and %d", position(first), position(second))
		}

		stop()
		torn := filepath.Join(w.dirs[second], "copies", nodeID(1).String(), execution.String(), "1",
			fmt.Sprintf("%s.%d", logs.SegmentName, len(w.copied(second))-1))
		info, err := os.Stat(torn)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(torn, info.Size()-3); err != nil {
			t.Fatal(err)
		}
		w.set(func() { w.cut, w.live = 20_000, false })
		if err := writer.Close(1, logs.Final{Status: "completed"}); err != nil {
			t.Fatal(err)
		}
		_, stop = w.sender()
		defer stop()
		time.Sleep(time.Minute) //nolint:forbidigo // Virtual.
		synctest.Wait()
		w.mustBeCopied(second)
	})
}

// TestPrune removes copies by age and size, never one that grew just now.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	var asked []byte // The executions whose output was to be archived.
	limits := copies.Limits{Age: 24 * time.Hour, Bytes: 250}
	limits.Archive = func(_ context.Context, id compute.ExecutionID, epoch uint64) (bool, error) {
		n := id.UUID[0]
		if asked = append(asked, n); epoch != 1 {
			t.Errorf("attempt %d of %s is archived", epoch, id)
		}
		if n < 5 {
			return true, nil
		}
		return false, errors.New("the disks are full")
	}
	s := copies.Open(dir, logs.Open(dir, nil), limits, func() time.Time { return now })
	place := func(n byte, age time.Duration, size int) string {
		id := compute.ExecutionID{UUID: compute.UUID{0: n}}
		path := filepath.Join(dir, "copies", nodeID(n).String(), id.String(), "1", logs.SegmentName)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		name string
		path string
		kept bool
	}{
		{"new and large", place(1, time.Minute, 200), true},
		{"second", place(2, time.Hour, 40), true},
		{"beyond the size", place(3, 2*time.Hour, 40), false},
		{"old", place(4, 25*time.Hour, 1), false},
		{"old, and cannot be archived", place(5, 26*time.Hour, 1), true},
		{"much too old, and cannot be archived", place(6, 49*time.Hour, 1), true},
		{"much too old after a while", place(7, 50*time.Hour, 1), false},
	} {
		if test.name == "much too old after a while" {
			now = now.Add(7 * time.Hour)
		}
		err := s.Prune(t.Context())
		if failed := bytes.ContainsAny(asked, "\x05\x06\x07"); (err != nil) != failed {
			t.Errorf("%s: executions %v, and %v", test.name, asked, err)
		}
		if _, err := os.Stat(test.path); (err == nil) != test.kept {
			t.Errorf("%s: kept is %v", test.name, !test.kept)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "copies")); len(left) != 3 {
		t.Errorf("the directories of %d nodes are left", len(left))
	}
}

// TestMalformedPieces sends malformed requests.
func TestMalformedPieces(t *testing.T) {
	w := newWorld(t, 2)
	for name, frame := range map[string][]byte{
		"too long":     {0x7f, 0xff, 0xff, 0xff},
		"no piece":     {0, 0, 0, 1, 1},
		"no execution": append([]byte{0, 0, 0, 21}, make([]byte, 21)...),
		"bytes of a huge chunk": append([]byte{0, 0, 0, 26},
			append(bytes.Repeat([]byte{1}, 16), 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 1, 7)...),
	} {
		here, there := net.Pipe()
		go func() {
			_, _ = here.Write(frame)
			_ = here.Close()
		}()
		if err := w.stores[nodeID(2)].Serve(t.Context(), nodeID(1), there); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
		_ = there.Close()
	}
}
