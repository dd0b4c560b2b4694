package logs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// copied are the copies on one node: of node 1's first attempt.
type copied struct {
	store    *Store
	position uint64
	complete bool
}

func (c *copied) From(compute.NodeID) *Store { return c.store }

func (c *copied) Position(compute.NodeID, compute.ExecutionID, uint64) uint64 { return c.position }

func (c *copied) Complete(compute.NodeID, compute.ExecutionID, uint64) bool { return c.complete }

// copies gives the nodes 2 and 3 of a cluster of three copies, and has all search for them.
func (c *cluster) copies(dirs []string) (second, third *copied) {
	second = &copied{store: c.node(2).cfg.Store.In(filepath.Join(dirs[1], "copies"))}
	third = &copied{store: c.node(3).cfg.Store.In(filepath.Join(dirs[2], "copies"))}
	c.node(2).cfg.Copies, c.node(3).cfg.Copies = second, third
	for n := byte(1); n <= 3; n++ {
		c.node(n).cfg.Holders = func(compute.ExecutionID) []compute.NodeID {
			return []compute.NodeID{nodeID(2), nodeID(3)}
		}
	}
	return second, third
}

// mustCopy makes a copy of what node 1 has now.
func (c *copied) mustCopy(t *testing.T, dirs []string) {
	t.Helper()
	data, err := os.ReadFile(Path(dirs[0], testExecution(), 1))
	if err != nil {
		t.Fatal(err)
	}
	path := c.store.path(testExecution(), 1)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.position = uint64(len(data))
}

// numbers are the numbers of lines.
func numbers(lines []Line) (out []uint64) {
	for _, l := range lines {
		out = append(out, l.Seq)
	}
	return out
}

// TestCopyReplacesALostNode follows an execution to its end from copies: the one that goes
// further ends with a mark, and a complete one with the end.
func TestCopyReplacesALostNode(t *testing.T) {
	for _, complete := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, dirs := newCluster(t, 3)
			second, third := c.copies(dirs)
			w := c.place(t, dirs, 1, 1)
			mustWrite(t, w, Stdout, "one\n")
			second.mustCopy(t, dirs)
			mustWrite(t, w, Stdout, "two\nthree\n")
			if complete {
				mustEnd(t, w, Final{})
			}
			third.mustCopy(t, dirs)
			third.complete = complete
			c.down[nodeID(1)] = true
			c.finish(&Final{Status: "system_failure"})
			for n := byte(2); n <= 3; n++ {
				lines, final, err := collect(t.Context(), c.node(n), 1)
				if err != nil || final.Status != "system_failure" || len(lines) < 2 || string(lines[1].Text) != "three" {
					t.Fatalf("node %d: %v, end %v, error %v", n, numbers(lines), final, err)
				}
				marked := len(lines) == 3 && lines[2].Stream == System && lines[2].Seq == Number(1, lastSeq) &&
					strings.Contains(string(lines[2].Text), "lost here")
				if marked == complete {
					t.Errorf("node %d: complete is %v, and the lines are %v", n, complete, numbers(lines))
				}
				tail, err := c.node(n).Tail(t.Context(), testExecution(), 100)
				if err != nil || string(tail.Stdout) != "one\ntwo\nthree\n" || strings.Contains(string(tail.Combined), "lost") == complete {
					t.Errorf("node %d: tail %q, error %v", n, tail.Combined, err)
				}
				found, err := c.node(n).Search(t.Context(), testExecution(), Search{Text: "t", Limit: 10})
				if err != nil || found.Total != 2 || (found.Missing == "") != complete {
					t.Errorf("node %d: found %+v, error %v", n, found, err)
				}
				read, err := c.node(n).Read(t.Context(), testExecution(), 0, 2)
				if err != nil || len(read) != 2 || string(read[1].Text) != "two" {
					t.Errorf("node %d: read %v, error %v", n, numbers(read), err)
				}
			}
		})
	}
}

// TestReaderReturnsFromACopy loses a node for a while: what it wrote meanwhile follows what
// the copy has, at the next number.
func TestReaderReturnsFromACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 3)
		second, _ := c.copies(dirs)
		w := c.place(t, dirs, 1, 1)
		mustWrite(t, w, Stdout, "one\ntwo\n")
		second.mustCopy(t, dirs)
		c.down[nodeID(1)] = true
		lines := make(chan Line)
		go func() {
			defer close(lines)
			_, err := c.node(3).Follow(t.Context(), testExecution(), 0, func(all []Line) error {
				for _, l := range all {
					lines <- l
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		for i, want := range []string{"one", "two"} {
			if l := <-lines; string(l.Text) != want || l.Seq != uint64(i+1) {
				t.Errorf("the copy has %d %q", l.Seq, l.Text)
			}
		}
		mustWrite(t, w, Stdout, "three\n")
		mustEnd(t, w, Final{})
		c.set(func() { c.down[nodeID(1)] = false })
		c.finish(&Final{})
		if l := <-lines; string(l.Text) != "three" || l.Seq != 3 {
			t.Errorf("the node continues with %d %q", l.Seq, l.Text)
		}
		if l, more := <-lines; more {
			t.Errorf("then there is %d %q", l.Seq, l.Text)
		}
	})
}

// TestCopyOfANodeThatDoesNotAnswer reads a complete copy although the cluster has not noticed
// yet that the node is down. A copy that may lack the end gives an error.
func TestCopyOfANodeThatDoesNotAnswer(t *testing.T) {
	for _, complete := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, dirs := newCluster(t, 3)
			second, _ := c.copies(dirs)
			w := c.place(t, dirs, 1, 1)
			mustWrite(t, w, Stdout, "one\n")
			second.mustCopy(t, dirs)
			second.complete = complete
			c.down[nodeID(1)] = true
			c.missed = map[compute.NodeID]bool{nodeID(1): true}
			c.finish(&Final{Status: "completed"})
			lines, final, err := collect(t.Context(), c.node(3), 0)
			if len(lines) != 1 || final.Status != "completed" || (err == nil) != complete {
				t.Errorf("complete is %v: %v, end %v, error %v", complete, numbers(lines), final, err)
			}
		})
	}
}

// TestReadOfALiveCopy reads without waiting what the copy of a node has that is down while
// its attempt may still print.
func TestReadOfALiveCopy(t *testing.T) {
	c, dirs := newCluster(t, 3)
	second, _ := c.copies(dirs)
	w := c.place(t, dirs, 1, 1)
	mustWrite(t, w, Stdout, "one\n")
	second.mustCopy(t, dirs)
	c.down[nodeID(1)] = true
	lines, err := c.node(3).Read(t.Context(), testExecution(), 0, 10)
	if err != nil || len(lines) != 1 {
		t.Errorf("read %v, error %v", numbers(lines), err)
	}
	tail, err := c.node(3).Tail(t.Context(), testExecution(), 100)
	if err != nil || string(tail.Combined) != "one\n" {
		t.Errorf("tail %q, error %v", tail.Combined, err)
	}
}

// TestCopyRequests sends requests for copies to where there are none, and broken ones.
func TestCopyRequests(t *testing.T) {
	c, _ := newCluster(t, 1)
	q := request{mode: modeCopy, of: attempt{testExecution(), 1}, copy: nodeID(1)}
	if back, err := decodeRequest(q.encode()); err != nil || back.copy != q.copy || back.of != q.of || back.mode != q.mode {
		t.Errorf("%+v came back, error %v", back, err)
	}
	ask := func(req []byte) error {
		stream, err := c.Stream(context.Background(), nodeID(1), req)
		if err != nil {
			return err
		}
		r, stop := newReceiver(t.Context(), stream, newMemory())
		defer stop()
		rec, err := r.next()
		if err != nil {
			return err
		}
		return &rec.fault
	}
	if err := ask(q.encode()); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a node without copies answers %v", err)
	}
	without := request{mode: modeCopy, of: q.of}
	for _, req := range [][]byte{without.encode(), q.encode()[:20], q.encode()[:33]} {
		if err := ask(req); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%x is answered with %v", req, err)
		}
	}
}
