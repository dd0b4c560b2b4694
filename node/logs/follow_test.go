package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
)

// cluster is a State and the Peers of nodes in one process.
type cluster struct {
	mu       sync.Mutex
	attempts []compute.Attempt
	final    *Final
	nodes    map[compute.NodeID]*Follower
	down     map[compute.NodeID]bool
	missed   map[compute.NodeID]bool // Down, but State still reports them as up.
	breakAt  func() int              // After how many bytes the next stream breaks; 0 for never.
	streams  int
	changed  chan struct{} // Closed by the next set.
}

func (c *cluster) Attempts(_ context.Context, _ compute.ExecutionID) ([]compute.Attempt, *Final, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]compute.Attempt(nil), c.attempts...), c.final, nil
}

func (c *cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *cluster) Up(id compute.NodeID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.down[id] || c.missed[id]
}

// set changes the state.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cluster) Stream(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down[node] {
		return nil, errors.New("connection refused")
	}
	c.streams++
	limit := 0
	if c.breakAt != nil {
		limit = c.breakAt()
	}
	r, w := io.Pipe()
	go func() {
		err := c.nodes[node].Serve(ctx, req, &breaking{w: w, left: limit}, nil)
		if err != nil {
			err = errors.New(err.Error()) // Error types do not cross the wire.
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// breaking is a writer that fails after left bytes, if left is not 0.
type breaking struct {
	w    io.Writer
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left == 0 {
		return b.w.Write(p)
	}
	n, err := b.w.Write(p[:min(len(p), b.left)])
	if b.left -= n; b.left <= 0 && err == nil {
		b.left = 1
		return n, errors.New("connection reset")
	}
	return n, err
}

func nodeID(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: n}} }

func testExecution() compute.ExecutionID { return compute.ExecutionID{UUID: compute.UUID{0: 9}} }

// newCluster returns a cluster of n nodes and their data directories.
func newCluster(t testing.TB, n int) (*cluster, []string) {
	t.Helper()
	c := &cluster{
		nodes: map[compute.NodeID]*Follower{}, down: map[compute.NodeID]bool{}, changed: make(chan struct{}),
	}
	var dirs []string
	for i := range n {
		dirs = append(dirs, t.TempDir())
		id := nodeID(byte(i + 1))
		c.nodes[id] = NewFollower(FollowerConfig{Node: id, Store: Open(dirs[i], nil), State: c, Peers: c})
	}
	return c, dirs
}

func (c *cluster) node(n byte) *Follower { return c.nodes[nodeID(n)] }

// place adds an attempt on node n and returns its writer.
func (c *cluster) place(t testing.TB, dirs []string, n byte, epoch uint64) *Writer {
	t.Helper()
	limits := small()
	limits.RingBytes = 4 << 20
	return c.placeLimited(t, dirs, n, epoch, limits)
}

// placeLimited adds an attempt on node n and returns its writer with other limits.
func (c *cluster) placeLimited(t testing.TB, dirs []string, n byte, epoch uint64, limits Limits) *Writer {
	t.Helper()
	c.set(func() {
		c.attempts = append(c.attempts, compute.Attempt{
			Execution: testExecution(), Epoch: epoch, Node: nodeID(n),
		})
	})
	return mustCreate(t, Path(dirs[n-1], testExecution(), epoch), limits)
}

// finish ends the last attempt and the execution.
func (c *cluster) finish(final *Final) {
	c.set(func() {
		c.attempts[len(c.attempts)-1].Ended = true
		c.final = final
	})
}

// collect returns what Follow delivers.
func collect(ctx context.Context, f *Follower, after uint64) ([]Line, Final, error) {
	var all []Line
	final, err := f.Follow(ctx, testExecution(), after, func(lines []Line) error {
		for _, l := range lines {
			l.Text = bytes.Clone(l.Text) // It is valid until this returns.
			all = append(all, l)
		}
		return nil
	})
	return all, final, err
}

func TestResumeAtEveryNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	for i := range 1200 {
		mustWrite(t, w, Stream(i%2), fmt.Sprintf("line %d\n", i+1))
	}
	mustEnd(t, w, Final{})
	all, _ := readAll(t, path, 0)
	if all[len(all)-1].Seq != 1200 {
		t.Fatalf("got %d lines until %d", len(all), all[len(all)-1].Seq)
	}
	for i, l := range all {
		rest, final := readAll(t, path, l.Seq)
		if final == nil || len(rest) != len(all)-i-1 || len(rest) > 0 && rest[0].Seq != all[i+1].Seq {
			t.Fatalf("resumed behind %d: got %d lines, want %d", l.Seq, len(rest), len(all)-i-1)
		}
	}
}

func TestFollowFromAnyNodeWhileWriting(t *testing.T) {
	c, dirs := newCluster(t, 3)
	w := c.place(t, dirs, 1, 1)
	const total = 3000
	var wg sync.WaitGroup
	for n := byte(1); n <= 3; n++ {
		for range 2 {
			wg.Go(func() {
				lines, final, err := collect(t.Context(), c.node(n), 0)
				if err != nil || final.ExitCode != 5 || len(lines) != total {
					t.Errorf("node %d: %d lines, end %v, error %v", n, len(lines), final, err)
				}
				for i, l := range lines {
					if l.Seq != uint64(i+1) || string(l.Text) != fmt.Sprintf("line %d", i+1) {
						t.Errorf("node %d: line %d is number %d, %q", n, i, l.Seq, l.Text)
						return
					}
				}
			})
		}
	}
	for i := range total {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i+1))
	}
	mustEnd(t, w, Final{ExitCode: 5, Status: "failed"})
	c.finish(&Final{ExitCode: 5, Status: "failed"})
	wg.Wait()
}

// TestRemoteStreamBreaks resumes a stream that breaks at any byte without gap
// or repeat.
func TestRemoteStreamBreaks(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	const total = 3000
	for i := range total {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i+1))
	}
	mustEnd(t, w, Final{})
	c.finish(&Final{})
	rnd := rand.New(rand.NewPCG(1, 2))
	c.breakAt = func() int { return 2*wireText + rnd.IntN(2*wireText) }
	lines, _, err := collect(t.Context(), c.node(2), 0)
	if err != nil || len(lines) != total || c.streams < 3 {
		t.Fatalf("got %d lines over %d streams, error %v", len(lines), c.streams, err)
	}
	for i, l := range lines {
		if l.Seq != uint64(i+1) {
			t.Fatalf("line %d is number %d", i, l.Seq)
		}
	}
}

// TestLinesShareRecords has a node ask for lines that understands records of several, and one
// of an older version. A mark, whose number is not the next one, is among the lines.
func TestLinesShareRecords(t *testing.T) {
	c, dirs := newCluster(t, 1)
	w := c.place(t, dirs, 1, 1)
	for i := range 40_000 { // More than the ring keeps.
		mustWrite(t, w, Stream(i%2), fmt.Sprintf("line %d %0*d\n", i+1, 100, i))
	}
	mustEnd(t, w, Final{})
	c.finish(&Final{})
	want, _, err := collect(t.Context(), c.node(1), 0)
	if err != nil || !strings.Contains(shown(want), "dropped here") {
		t.Fatalf("got %d lines without a mark, error %v", len(want), err)
	}
	for _, limit := range []int{0, understandsLines} {
		var answer bytes.Buffer
		q := request{mode: modeFollow, of: attempt{testExecution(), 1}, limit: limit}
		if err := c.node(1).Serve(t.Context(), q.encode(), &answer, nil); err != nil {
			t.Fatal(err)
		}
		var got []Line
		several := 0
		for data := answer.Bytes(); len(data) > 0; {
			rec, n, err := parse(data)
			if err != nil || n > 2*wireText {
				t.Fatalf("a record of %d bytes: %v", n, err)
			}
			if data = data[n:]; rec.kind == kindLines {
				several++
			}
			got = append(got, rec.all()...)
		}
		if shown(got) != shown(want) || (several > 0) != (limit == understandsLines) {
			t.Errorf("limit %d: %d lines with %d records of several, want %d lines", limit, len(got), several, len(want))
		}
	}
}

func TestAttemptsAreOneStream(t *testing.T) {
	c, dirs := newCluster(t, 3)
	first := c.place(t, dirs, 1, 1)
	mustWrite(t, first, Stdout, "first\nhalf")
	first.flushPartial()    // As its timer does, or has done.
	first.ring.lock.Close() // The supervisor dies here.
	c.set(func() { c.attempts[0].Ended = true })
	second := c.place(t, dirs, 2, 2)
	mustWrite(t, second, Stdout, "second\nthird\n")
	mustEnd(t, second, Final{Status: "completed"})
	c.finish(&Final{Status: "completed"})
	want := []uint64{1, 2, Number(2, 1), Number(2, 2)}
	for n := byte(1); n <= 3; n++ {
		for i := range want {
			after := uint64(0)
			if i > 0 {
				after = want[i-1]
			}
			lines, final, err := collect(t.Context(), c.node(n), after)
			if err != nil || final.Status != "completed" || len(lines) != len(want)-i {
				t.Fatalf("node %d behind %d: %d lines, end %v, error %v", n, after, len(lines), final, err)
			}
			for j, l := range lines {
				if l.Seq != want[i+j] {
					t.Errorf("node %d: got number %d, want %d", n, l.Seq, want[i+j])
				}
			}
		}
	}
}

func TestNumber(t *testing.T) {
	for _, at := range [][2]uint64{{1, 0}, {1, 1}, {1, 1<<40 - 1}, {2, 0}, {7, 12}, {1<<24 - 1, 3}} {
		epoch, seq := Split(Number(at[0], at[1]))
		if epoch != at[0] || seq != at[1] {
			t.Errorf("%v came back as %d, %d", at, epoch, seq)
		}
	}
	if Number(1, 42) != 42 {
		t.Error("a first attempt's lines do not keep their numbers")
	}
}

func TestFollowWaitsForTheFirstAttempt(t *testing.T) {
	c, dirs := newCluster(t, 2)
	got := make(chan []Line)
	go func() {
		lines, _, err := collect(t.Context(), c.node(2), 0)
		if err != nil {
			t.Error(err)
		}
		got <- lines
	}()
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "hello\n")
	mustEnd(t, w, Final{})
	c.finish(&Final{})
	if lines := <-got; len(lines) != 1 {
		t.Errorf("got %d lines, want 1", len(lines))
	}
}

// lagging is the State of a node whose replica has not got to the execution yet.
type lagging struct {
	State

	behind atomic.Int32 // How many more reads find nothing.
}

func (l *lagging) Attempts(ctx context.Context, id compute.ExecutionID) ([]compute.Attempt, *Final, error) {
	if l.behind.Add(-1) >= 0 {
		return nil, nil, compute.Errorf(compute.CodeNotFound, "No such execution.")
	}
	return l.State.Attempts(ctx, id)
}

// TestReplicaLags follows output on a node that learns of the execution later than the
// node that asks, and before its program has begun to write.
func TestReplicaLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		state := &lagging{State: c}
		c.nodes[nodeID(2)] = NewFollower(FollowerConfig{Node: nodeID(2), Store: Open(dirs[1], nil), State: state, Peers: c})
		c.set(func() {
			c.attempts = []compute.Attempt{{Execution: testExecution(), Epoch: 1, Node: nodeID(2)}}
		})
		state.behind.Store(20)
		go func() {
			<-time.After(time.Second)
			w := mustCreate(t, Path(dirs[1], testExecution(), 1), small())
			mustWrite(t, w, Stdout, "late\n")
			mustEnd(t, w, Final{})
			c.finish(&Final{})
		}()
		lines, _, err := collect(t.Context(), c.node(1), 0)
		if err != nil || len(lines) != 1 || string(lines[0].Text) != "late" {
			t.Errorf("got %v, %v", lines, err)
		}
		// A node that never learns of it says so.
		state.behind.Store(1 << 30)
		if _, _, err := collect(t.Context(), c.node(1), 0); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("without the execution: %v", err)
		}
	})
}

func TestUnreachableNode(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "hello\n")
	c.down[nodeID(1)] = true
	c.finish(&Final{Status: "system_failure"})
	_, final, err := collect(t.Context(), c.node(2), 0)
	if compute.CodeOf(err) != compute.CodeUnavailable || final.Status != "system_failure" {
		t.Errorf("got end %v, error %v", final, err)
	}
	if _, err := c.node(2).Tail(t.Context(), testExecution(), 100); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("tail: got %v", err)
	}
}

// TestLostNodeBlocksNothing follows an execution whose first attempt is on a
// node that is gone for good. A mark replaces that attempt's output, and the
// second attempt's follows.
func TestLostNodeBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 3)
		mustWrite(t, c.place(t, dirs, 1, 1), Stdout, "first\n")
		c.down[nodeID(1)] = true
		c.set(func() { c.attempts[0].Ended = true })
		second := c.place(t, dirs, 2, 2)
		mustWrite(t, second, Stdout, "second\n")
		mustEnd(t, second, Final{Status: "completed"})
		c.finish(&Final{Status: "completed"})
		for n := byte(2); n <= 3; n++ {
			lines, final, err := collect(t.Context(), c.node(n), 0)
			if err != nil || final.Status != "completed" || len(lines) != 2 {
				t.Fatalf("node %d: %d lines, end %v, error %v", n, len(lines), final, err)
			}
			l, gone := lines[0], []byte(nodeID(1).String())
			if l.Stream != System || l.Seq != Number(1, lastSeq) || !bytes.Contains(l.Text, gone) {
				t.Errorf("node %d: in place of the first attempt came %d %s %q", n, l.Seq, l.Stream, l.Text)
			}
			if l := lines[1]; l.Seq != Number(2, 1) || string(l.Text) != "second" {
				t.Errorf("node %d: behind it came %d %q", n, l.Seq, l.Text)
			}
			for _, down := range []bool{true, false} { // Resuming behind the mark works even when the node is back.
				c.set(func() { c.down[nodeID(1)] = down })
				again, _, err := collect(t.Context(), c.node(n), lines[0].Seq)
				if err != nil || len(again) != 1 || again[0].Seq != Number(2, 1) {
					t.Errorf("node %d, down %v: behind that %d lines, error %v", n, down, len(again), err)
				}
			}
			c.set(func() { c.down[nodeID(1)] = true })
		}
	})
}

// TestReachableOutputIsNotSkipped checks that the output of an earlier attempt is not
// left out while its node counts as up, nor because of an error of this node's
// disk.
func TestReachableOutputIsNotSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 3)
		mustWrite(t, c.place(t, dirs, 1, 1), Stdout, "first\n")
		c.set(func() { c.attempts[0].Ended = true })
		second := c.place(t, dirs, 2, 2)
		mustWrite(t, second, Stdout, "second\n")
		mustEnd(t, second, Final{})
		c.finish(&Final{})
		c.down[nodeID(1)], c.missed = true, map[compute.NodeID]bool{nodeID(1): true}
		if lines, _, err := collect(t.Context(), c.node(3), 0); compute.CodeOf(err) != compute.CodeUnavailable || len(lines) > 0 {
			t.Errorf("of a node that counts as up: %d lines, error %v", len(lines), err)
		}
		c.set(func() { c.down[nodeID(1)] = false })
		if lines, _, err := collect(t.Context(), c.node(3), 0); err != nil || len(lines) != 2 {
			t.Errorf("once it answers: %d lines, error %v", len(lines), err)
		}
		c.set(func() { c.down[nodeID(1)] = true; c.missed = nil })
		segment := Path(dirs[0], testExecution(), 1) // It cannot be opened: a link to itself.
		if err := errors.Join(os.Remove(segment), os.Symlink(filepath.Base(segment), segment)); err != nil {
			t.Fatal(err)
		}
		if lines, _, err := collect(t.Context(), c.node(1), 0); err == nil {
			t.Errorf("of a disk that is broken: %d lines and no error", len(lines))
		}
	})
}

func TestNodeThatComesBack(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "hello\n")
	mustEnd(t, w, Final{})
	c.down[nodeID(1)] = true // The cluster still takes the execution for running.
	tries := 0
	f := NewFollower(FollowerConfig{Node: nodeID(2), Store: Open(dirs[1], nil), State: c, Peers: peersFunc(
		func(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error) {
			if tries++; tries == 3 {
				c.set(func() { c.down[nodeID(1)] = false })
				c.finish(&Final{})
			}
			return c.Stream(ctx, node, req)
		})})
	if lines, _, err := collect(t.Context(), f, 0); err != nil || len(lines) != 1 {
		t.Errorf("got %d lines, error %v", len(lines), err)
	}
}

type peersFunc func(context.Context, compute.NodeID, []byte) (io.ReadCloser, error)

func (p peersFunc) Stream(ctx context.Context, n compute.NodeID, req []byte) (io.ReadCloser, error) {
	return p(ctx, n, req)
}

func TestCallerEndsFollow(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "hello\n")
	stop := errors.New("the client is gone")
	for n := byte(1); n <= 2; n++ {
		_, err := c.node(n).Follow(t.Context(), testExecution(), 0, func([]Line) error { return stop })
		if err != stop { //nolint:errorlint // The identical error is promised.
			t.Errorf("node %d: got %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = c.node(n).Follow(ctx, testExecution(), 0, func([]Line) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("node %d: got %v for a cancelled context", n, err)
		}
	}
}

func TestQuietNodeIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		w := c.place(t, dirs, 1, 1)
		done := make(chan []Line)
		go func() {
			lines, _, err := collect(t.Context(), c.node(2), 0)
			if err != nil {
				t.Error(err)
			}
			done <- lines
		}()
		<-time.After(10 * deadAfter) // Fake time of the synctest bubble.
		mustWrite(t, w, Stdout, "at last\n")
		mustEnd(t, w, Final{})
		c.finish(&Final{})
		if lines := <-done; len(lines) != 1 || c.streams != 1 {
			t.Errorf("got %d lines over %d streams, want one of each", len(lines), c.streams)
		}
	})
}

// notifierFunc is a Notifier.
type notifierFunc func(dir string) (<-chan struct{}, func(), error)

func (n notifierFunc) Watch(dir string) (<-chan struct{}, func(), error) { return n(dir) }

// TestWritesAreSeenAtOnce follows, through another node, a writer whose node is notified of
// its writes. No time passes until a line or the end is seen.
func TestWritesAreSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		written, watched, ended := make(chan struct{}, 1), make(chan struct{}), 0
		c.node(1).cfg.Store = Open(dirs[0], notifierFunc(func(dir string) (<-chan struct{}, func(), error) {
			if dir != filepath.Dir(Path(dirs[0], testExecution(), 1)) {
				t.Errorf("%s is watched", dir)
			}
			close(watched)
			return written, func() { ended++ }, nil
		}))
		w := c.place(t, dirs, 1, 1)
		seen := make(chan time.Time)
		go func() {
			defer close(seen)
			_, err := c.node(2).Follow(t.Context(), testExecution(), 0, func([]Line) error {
				seen <- time.Now()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		<-watched
		for range 5 {
			<-time.After(rareInterval * 2 / 3)
			begin := time.Now()
			mustWrite(t, w, Stdout, "line\n")
			written <- struct{}{}
			if took := (<-seen).Sub(begin); took > 0 {
				t.Errorf("a line was seen after %v", took)
			}
		}
		mustEnd(t, w, Final{})
		written <- struct{}{}
		<-time.After(pollInterval * 3 / 2) // The follower has the end of the output, but not of the execution.
		begin := time.Now()
		c.finish(&Final{})
		if _, more := <-seen; more || time.Since(begin) > changePause {
			t.Errorf("the end was seen after %v", time.Since(begin))
		}
		if ended != 1 {
			t.Errorf("%d watches ended, want 1", ended)
		}
	})
}

func TestDeadPeerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		w := c.place(t, dirs, 1, 1)
		mustWrite(t, w, Stdout, "hello\n")
		mustEnd(t, w, Final{})
		c.finish(&Final{})
		tries := 0
		f := NewFollower(FollowerConfig{Node: nodeID(2), Store: Open(dirs[1], nil), State: c, Peers: peersFunc(
			func(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error) {
				if tries++; tries == 1 {
					r, _ := io.Pipe() // Nothing is ever written to it.
					return r, nil
				}
				return c.Stream(ctx, node, req)
			})})
		if lines, _, err := collect(t.Context(), f, 0); err != nil || len(lines) != 1 || tries != 2 {
			t.Errorf("got %d lines after %d tries, error %v", len(lines), tries, err)
		}
	})
}

// TestPeerSendsInvalidRecords feeds invalid answers of another node to a
// Follower.
func TestPeerSendsInvalidRecords(t *testing.T) {
	line := func(b []byte, seq uint64) []byte {
		return appendLine(b, Line{Seq: seq, At: noon, Text: []byte("x")})
	}
	end := appendEnd(nil, Final{})
	for _, test := range []struct {
		name string
		sent []byte
		want string
		code compute.Code
	}{
		{"repeats", append(line(line(line(line(nil, 1), 1), 2), 1), end...), "[1 2]", ""},
		{"gives up", appendFault(line(nil, 1), compute.Errorf(compute.CodeNotFound, "gone")), "[1]", compute.CodeNotFound},
		{"cut", line(nil, 1)[:12], "[]", compute.CodeUnavailable},
		{"no record", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "[]", compute.CodeUnavailable},
		{"huge record", []byte("\xff\xff\xff\x7f\x00\x00\x00\x00"), "[]", compute.CodeUnavailable},
		{"nothing", nil, "[]", compute.CodeUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, dirs := newCluster(t, 2)
			w := c.place(t, dirs, 1, 1)
			mustEnd(t, w, Final{})
			c.finish(&Final{})
			f := NewFollower(FollowerConfig{Node: nodeID(2), Store: Open(dirs[1], nil), State: c, Peers: peersFunc(
				func(context.Context, compute.NodeID, []byte) (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(test.sent)), nil
				})})
			lines, _, err := collect(t.Context(), f, 0)
			var got []uint64
			for _, l := range lines {
				got = append(got, l.Seq)
			}
			if fmt.Sprint(got) != test.want || compute.CodeOf(err) != test.code {
				t.Errorf("%s: got %v, %v, want %s and code %q", test.name, got, err, test.want, test.code)
			}
		})
	}
}

// TestFollowersOfAFlood checks that followers see each line once, or a mark
// that counts it.
func TestFollowersOfAFlood(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	const total = 30_000
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			r := newReader(path, 0)
			defer mustClose(t, r)
			last := uint64(0)
			for {
				lines, final, err := nextLines(r)
				if err != nil {
					t.Error(err)
					return
				}
				for _, l := range lines {
					if l.Stream == System {
						want := fmt.Sprintf("[berth: %d lines (", l.Seq-last)
						if !strings.HasPrefix(string(l.Text), want) {
							t.Errorf("got %q behind %d, want %q", l.Text, last, want)
						}
					} else if l.Seq != last+1 || string(l.Text) != fmt.Sprintf("line %d", l.Seq) {
						t.Errorf("got number %d, %q behind %d", l.Seq, l.Text, last)
						return
					}
					last = l.Seq
				}
				if final != nil {
					if last != total {
						t.Errorf("ended behind %d of %d", last, total)
					}
					return
				}
			}
		})
	}
	go func() {
		defer close(done)
		for i := range total {
			if err := w.Write(Stdout, noon, fmt.Appendf(nil, "line %d\n", i+1)); err != nil {
				t.Error(err)
				return
			}
		}
		if err := w.Close(noon, Final{}); err != nil {
			t.Error(err)
		}
	}()
	<-done
	wg.Wait()
}

func TestTail(t *testing.T) {
	c, dirs := newCluster(t, 2)
	if tail, err := c.node(1).Tail(t.Context(), testExecution(), 10); err != nil || len(tail.Combined) != 0 {
		t.Errorf("before the first attempt: got %v, %v", tail, err)
	}
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "a€\n")
	mustWrite(t, w, Stderr, "oops\n")
	mustWrite(t, w, System, "time is up\n")
	mustEnd(t, w, Final{})
	for _, test := range []struct {
		limit                    int
		stdout, stderr, combined string
		truncated                bool
	}{
		{100, "a€\n", "oops\n", "a€\noops\ntime is up\n", false},
		{21, "a€\n", "oops\n", "a€\noops\ntime is up\n", false},
		{3, "\n", "ps\n", "up\n", true},
		{0, "", "", "", true},
	} {
		for n := byte(1); n <= 2; n++ {
			tail, err := c.node(n).Tail(t.Context(), testExecution(), test.limit)
			if err != nil || string(tail.Stdout) != test.stdout || string(tail.Stderr) != test.stderr ||
				string(tail.Combined) != test.combined || tail.Truncated != test.truncated {
				t.Errorf("node %d, limit %d: got %q, %q, %q, %t, %v", n, test.limit,
					tail.Stdout, tail.Stderr, tail.Combined, tail.Truncated, err)
			}
		}
	}
}

func TestTailOfLargeOutput(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	for i := range 20_000 {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i))
	}
	mustEnd(t, w, Final{})
	for n := byte(1); n <= 2; n++ {
		tail, err := c.node(n).Tail(t.Context(), testExecution(), 100<<10)
		if err != nil || len(tail.Stdout) != 100<<10 || !strings.HasSuffix(string(tail.Stdout), "line 19999\n") {
			t.Errorf("node %d: got %d bytes, %v", n, len(tail.Stdout), err)
		}
	}
}

// TestTailsTakeTurns has many clients ask for the end of outputs, and does not read
// what is sent: few are in memory at a time, and each client gets its tail.
func TestTailsTakeTurns(t *testing.T) {
	const clients = 3 * tailsAtOnce
	dir := t.TempDir()
	store := Open(dir, nil)
	var mu sync.Mutex
	held, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		held += n
		most = max(most, held)
	}
	release, holding := make(chan struct{}), make(chan struct{}, clients)
	var wg sync.WaitGroup
	for i := range byte(clients) {
		id := compute.ExecutionID{UUID: compute.UUID{0: i + 1}}
		w := mustCreate(t, Path(dir, id, 1), small())
		mustWrite(t, w, Stdout, "the end\n")
		mustEnd(t, w, Final{})
		wg.Go(func() {
			err := store.tail(t.Context(), attempt{id, 1}, 100, func(tail Tail) error {
				count(1)
				defer count(-1)
				holding <- struct{}{}
				<-release
				if string(tail.Stdout) != "the end\n" {
					t.Errorf("got %q", tail.Stdout)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range tailsAtOnce {
		<-holding
	}
	close(release)
	wg.Wait()
	if most > tailsAtOnce {
		t.Errorf("%d tails at once, want %d", most, tailsAtOnce)
	}
}

func TestRead(t *testing.T) {
	c, dirs := newCluster(t, 2)
	w := c.place(t, dirs, 1, 1)
	for i := range 5000 {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i+1))
	}
	for n := byte(1); n <= 2; n++ {
		for _, test := range []struct {
			after uint64
			limit int
			want  int
		}{{0, 10, 10}, {0, 3000, 3000}, {4990, 100, 10}, {5000, 100, 0}} {
			lines, err := c.node(n).Read(t.Context(), testExecution(), test.after, test.limit)
			if err != nil || len(lines) != test.want || test.want > 0 && lines[0].Seq != test.after+1 {
				t.Errorf("node %d behind %d: got %d lines, %v", n, test.after, len(lines), err)
			}
		}
	}
}

func TestDelete(t *testing.T) {
	dir := t.TempDir()
	store := Open(dir, nil)
	ids := []compute.ExecutionID{{UUID: compute.UUID{1}}, {UUID: compute.UUID{2}}, {UUID: compute.UUID{3}}}
	for _, id := range ids {
		mustEnd(t, mustCreate(t, Path(dir, id, 1), small()), Final{})
	}
	has := func(id compute.ExecutionID) bool {
		_, final := readAll(t, Path(dir, id, 1), 0)
		return final != nil
	}
	if err := store.Delete(ids[0]); err != nil || has(ids[0]) || !has(ids[1]) {
		t.Errorf("delete: got %v", err)
	}
	if err := store.Delete(compute.ExecutionID{}); err == nil || !has(ids[1]) {
		t.Error("deleting no execution deleted all")
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendLine(nil, Line{Seq: 3, At: noon, Text: []byte("x"), Partial: true}))
	f.Add(appendEnd(nil, Final{ExitCode: -1, Error: "e", Status: "failed"}))
	f.Add(appendFault(nil, compute.Errorf(compute.CodeNotFound, "gone")))
	var tail bytes.Buffer
	if err := (&sender{w: &tail}).tail(Tail{Stdout: []byte("x"), Truncated: true}); err != nil {
		f.Fatal(err)
	}
	f.Add(tail.Bytes())
	f.Add(appendChunk(nil, 1, noon, 7))
	f.Add(appendLines(nil, []Line{{Seq: 3, At: noon, Text: []byte("x")}, {Seq: 4, At: noon, Stream: Stderr, Partial: true}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, n, err := parse(b)
		if err == nil && (n < recordHeader+1 || n > len(b)) {
			t.Errorf("a record of %d bytes in %d", n, len(b))
		}
		if len(b) > recordHeader { // The same bytes with a valid checksum.
			if _, n, err := parse(finish(append([]byte(nil), b...), 0)); err == nil && n != len(b) {
				t.Errorf("a record of %d bytes in %d", n, len(b))
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(request{mode: modeTail, of: attempt{testExecution(), 3}, after: 4, limit: 5}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeRequest(b)
		if err != nil {
			return
		}
		again, err := decodeRequest(q.encode())
		if err != nil || again != q {
			t.Errorf("%+v came back as %+v, %v", q, again, err)
		}
	})
}

func TestServeRefusesGarbage(t *testing.T) {
	c, _ := newCluster(t, 1)
	for _, req := range [][]byte{nil, {1}, make([]byte, 18), make([]byte, 65), request{}.encode()} {
		var b strings.Builder
		err := c.node(1).Serve(t.Context(), req, &b, nil)
		rec, _, perr := parse([]byte(b.String()))
		if compute.CodeOf(err) != compute.CodeInvalid || perr != nil || rec.fault.Code != compute.CodeInvalid {
			t.Errorf("%v: got %v and %+v, %v", req, err, rec, perr)
		}
	}
}
