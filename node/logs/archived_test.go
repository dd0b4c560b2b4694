package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// archived has the archived output of the first attempt of an execution.
type archived struct {
	output []byte
	whole  bool
	opened int
	err    error
}

func (a *archived) Open(_ context.Context, _ compute.ExecutionID, epoch uint64) (io.ReadCloser, bool, error) {
	if a.output == nil || epoch != 1 {
		return nil, false, a.err
	}
	a.opened++
	return io.NopCloser(bytes.NewReader(a.output)), a.whole, a.err
}

// shown returns all that lines have, for a comparison.
func shown(lines []Line) string {
	var all strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&all, "%d %s %v %v %q\n", l.Seq, l.At, l.Stream, l.Partial, l.Text)
	}
	return all.String()
}

// TestArchivedOutput archives the output of a first attempt from another node, removes it,
// and reads, follows, tails and searches it from each node.
func TestArchivedOutput(t *testing.T) {
	for _, whole := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, dirs := newCluster(t, 3)
			second, _ := c.copies(dirs)
			w := c.place(t, dirs, 1, 1)
			for n := range 100 {
				mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", n+1))
			}
			mustWrite(t, w, Stderr, "\xff no text")
			second.mustCopy(t, dirs)
			mustEnd(t, w, Final{})
			c.set(func() { c.attempts[0].Ended, c.down[nodeID(1)] = true, !whole })
			var output bytes.Buffer
			lines, all, err := c.node(3).Export(t.Context(), c.attempts[0], &output)
			if err != nil || all != whole || lines < 100 {
				t.Fatalf("exported %d lines, whole %v, error %v", lines, all, err)
			}
			c.finish(&Final{Status: "completed"})
			want, _, err := collect(t.Context(), c.node(2), 0)
			if err != nil {
				t.Fatal(err)
			}
			archive := &archived{output: output.Bytes(), whole: all}
			for n := byte(1); n <= 3; n++ {
				c.node(n).cfg.Archives = archive
			}
			for _, dir := range dirs {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			for n := byte(2); n <= 3; n++ {
				got, final, err := collect(t.Context(), c.node(n), 0)
				if err != nil || final.Status != "completed" || shown(got) != shown(want) {
					t.Errorf("node %d: got %s, want %s, error %v", n, shown(got), shown(want), err)
				}
				got, err = c.node(n).Read(t.Context(), testExecution(), 42, 3)
				if err != nil || len(got) != 3 || string(got[0].Text) != "line 43" {
					t.Errorf("node %d: read %s, error %v", n, shown(got), err)
				}
				tail, err := c.node(n).Tail(t.Context(), testExecution(), 100)
				if err != nil || !strings.HasSuffix(string(tail.Stdout), "line 99\nline 100\n") ||
					strings.Contains(string(tail.Combined), "lost here") == whole {
					t.Errorf("node %d: tail %q, error %v", n, tail.Combined, err)
				}
				found, err := c.node(n).Search(t.Context(), testExecution(), Search{Text: "LINE 7", Limit: 5})
				if err != nil || found.Total != 11 || len(found.Lines) != 5 || (found.Missing == "") != whole {
					t.Errorf("node %d: found %+v, error %v", n, found, err)
				}
			}
			if archive.opened == 0 {
				t.Error("the archive was not read")
			}
		})
	}
}

// TestPartOfOutputIsArchived checks that the node that has all of the output is read rather
// than an archive that lacks the end.
func TestPartOfOutputIsArchived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		w := c.place(t, dirs, 1, 1)
		mustWrite(t, w, Stdout, "one\ntwo\n")
		mustEnd(t, w, Final{})
		c.finish(&Final{Status: "completed"})
		c.set(func() { c.attempts[0].Ended = true })
		c.node(2).cfg.Archives = &archived{output: appendLine(nil, Line{Seq: 1, Text: []byte("one")})}
		lines, _, err := collect(t.Context(), c.node(2), 0)
		if err != nil || len(lines) != 2 {
			t.Errorf("got %s, error %v", shown(lines), err)
		}
	})
}

// TestArchiveCannotBeRead checks that output which is archived, and cannot be read now, is an
// error and never taken for none.
func TestArchiveCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 1)
		mustEnd(t, c.place(t, dirs, 1, 1), Final{})
		c.finish(&Final{Status: "completed"})
		c.set(func() { c.attempts[0].Ended = true })
		c.node(1).cfg.Archives = &archived{err: compute.Errorf(compute.CodeUnavailable, "The object store is away.")}
		_, _, err := collect(t.Context(), c.node(1), 0)
		if compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("follow: %v", err)
		}
		if _, err = c.node(1).Tail(t.Context(), testExecution(), 10); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("tail: %v", err)
		}
		found, err := c.node(1).Search(t.Context(), testExecution(), Search{Limit: 10})
		if err != nil || found.Missing == "" {
			t.Errorf("search: %+v, %v", found, err)
		}
	})
}

// TestArchiveIsNotANodeThatIsDown checks that archived output which cannot be read is not
// left out in favour of a later attempt, although its node is down.
func TestArchiveIsNotANodeThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		mustEnd(t, c.place(t, dirs, 2, 1), Final{})
		mustEnd(t, c.place(t, dirs, 1, 2), Final{})
		c.finish(&Final{Status: "completed"})
		c.set(func() { c.attempts[0].Ended, c.down[nodeID(2)] = true, true })
		record := appendLine(nil, Line{Seq: 1, Text: []byte("one")})
		c.node(1).cfg.Archives = &archived{output: record[:len(record)-1], whole: true}
		if lines, _, err := collect(t.Context(), c.node(1), 0); err == nil {
			t.Errorf("got %s without an error", shown(lines))
		}
	})
}

// TestNodeLostItsOutput checks that the archived part is read when the node of the output is
// up and has lost it.
func TestNodeLostItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dirs := newCluster(t, 2)
		mustEnd(t, c.place(t, dirs, 1, 1), Final{})
		c.finish(&Final{Status: "completed"})
		if err := os.RemoveAll(dirs[0]); err != nil {
			t.Fatal(err)
		}
		output := appendMark(appendLine(nil, Line{Seq: 1, Text: []byte("one")}), kindOver)
		for n := byte(1); n <= 2; n++ {
			c.node(n).cfg.Archives = &archived{output: output}
			lines, _, err := collect(t.Context(), c.node(n), 0)
			if err != nil || len(lines) != 2 || string(lines[0].Text) != "one" || !strings.Contains(string(lines[1].Text), "lost here") {
				t.Errorf("node %d: got %s, error %v", n, shown(lines), err)
			}
		}
	})
}
