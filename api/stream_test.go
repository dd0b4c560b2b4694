package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// events reads a stream to its end, or until n events came. Comments are left
// out.
func (w *world) events(path, bearer string, n int, header ...string) []string {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	w.ok(err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(req)
	w.ok(err)
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("stream = %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	var out []string
	event := ""
	lines := bufio.NewScanner(resp.Body)
	for len(out) < n && lines.Scan() {
		switch line := lines.Text(); {
		case line == "" && event != "":
			out = append(out, strings.TrimSuffix(event, "\n"))
			event = ""
		case line != "" && !strings.HasPrefix(line, ":"):
			event += line + "\n"
		}
	}
	return out
}

// streamPath returns the path of the stream of a started execution.
func streamPath(started wire.Started) string {
	return strings.TrimPrefix(started.StreamingURL, "http://berth.test")
}

// startStream starts an execution that can be streamed.
func (w *world) startStream() wire.Started {
	w.Helper()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "print(1)"}, &started)
	return started
}

func TestStream(t *testing.T) {
	w := newWorld(t)
	started := w.startStream()
	id := started.ExecutionID
	got := make(chan []string)
	go func() { got <- w.events(streamPath(started), "", 10) }()
	w.eventually("stream", func() bool { return w.streams() == 1 })
	w.place(id, 1)
	w.begun(id)
	w.logs.write(id,
		handler.Line{Seq: 1, Stream: "stdout", Text: []byte("one")},
		handler.Line{Seq: 2, Stream: "stderr", Text: []byte("tw"), Partial: true},
		handler.Line{Seq: 5, Stream: "stdout", Text: []byte("\xffo \"quoted\"")})
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	w.logs.finish(id)
	want := []string{
		"id: 1\ndata: {\"output\":{\"content\":\"one\\n\"},\"stream\":\"stdout\"}",
		"id: 2\ndata: {\"output\":{\"content\":\"tw\"},\"stream\":\"stderr\"}",
		"id: 5\ndata: {\"output\":{\"content\":\"\uFFFDo \\\"quoted\\\"\\n\"},\"stream\":\"stdout\"}",
		`data: {"jobFinished":{"job":{"result":{"returnCode":"0","error":null}}}}`,
	}
	compare := func(what string, got, want []string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	compare("live stream", <-got, want)
	compare("late stream", w.events(streamPath(started), "", 10), want)
	compare("resumed stream", w.events(streamPath(started), "", 10, "Last-Event-ID", "2"), want[2:])
	compare("with a key", w.events("/api/v1/stream/"+id.String(), w.adaKey, 10), want)
	compare("resumed behind the end", w.events(streamPath(started), "", 10, "Last-Event-ID", "5"), want[3:])
	w.eventually("end of the streams", func() bool { return w.streams() == 0 })
	post := w.send("POST", streamPath(started), "", nil)
	if post.status != 200 || !strings.Contains(string(post.body), "jobFinished") {
		t.Errorf("POST = %d %s", post.status, post.body)
	}
}

// TestLinesShareEvents prints a flood of short lines. Their events take little more
// than the text, and each can be resumed behind.
func TestLinesShareEvents(t *testing.T) {
	const count = 5000
	w := newWorld(t)
	started := w.startStream()
	id := started.ExecutionID
	w.place(id, 1)
	w.begun(id)
	var lines []handler.Line
	var text strings.Builder
	for n := range uint64(count) {
		line := handler.Line{Seq: n + 1, Stream: "stdout", Text: fmt.Appendf(nil, "line %d of a flood of short lines", n)}
		if n == count/2 {
			line.Stream = "stderr"
		}
		fmt.Fprintf(&text, "%s\n", line.Text)
		lines = append(lines, line)
	}
	w.logs.write(id, lines...)
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	w.logs.finish(id)

	after, all, bytes, bothStreams := "0", "", 0, map[string]bool{}
	for {
		// A client that resumes behind each event.
		event := w.events(streamPath(started), "", 1, "Last-Event-ID", after)[0]
		if strings.Contains(event, "jobFinished") {
			break
		}
		head, data, _ := strings.Cut(event, "\ndata: ")
		after = strings.TrimPrefix(head, "id: ")
		var parsed wire.StreamEvent
		if err := json.Unmarshal([]byte(data), &parsed); err != nil {
			t.Fatal(err)
		}
		all += parsed.Output.Content
		bothStreams[parsed.Stream] = true
		bytes += len(event) + len("\n\n")
	}
	if all != text.String() {
		t.Errorf("%d bytes of output came as %d", text.Len(), len(all))
	}
	if bytes > text.Len()*12/10 {
		t.Errorf("events take %d bytes for %d bytes of output", bytes, text.Len())
	}
	if len(bothStreams) != 2 {
		t.Errorf("streams are %v", bothStreams)
	}
}

// TestStreamWithoutItsEnd has output that cannot be read when the execution has
// ended. While its node is up the stream breaks off, and the client asks again.
// When the node is down or has no output, the stream ends as whole, with a note
// about the missing output.
func TestStreamWithoutItsEnd(t *testing.T) {
	w := newWorld(t, func(cfg *handler.Config) { cfg.Limits.LastLines = 20 * time.Millisecond })
	silent := compute.Errorf(compute.CodeUnavailable, "The node does not answer.")
	for _, tc := range []struct {
		name   string
		broken error
		down   bool
		want   string // In the only event; none without.
	}{
		{"its node does not answer this one", silent, false, ""},
		{
			"its node is down", silent, true,
			`"output_missing":"The output is on node ` + nodeID(1).String() + `, which is down`,
		},
		{
			"its node has none", compute.Errorf(compute.CodeNotFound, "There is none."), false,
			`"output_missing":"The output cannot be read any more."`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			started := w.startStream()
			id := started.ExecutionID
			w.place(id, 1)
			w.begun(id)
			w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
			w.logs.breakOff(tc.broken)
			if tc.down {
				w.must(command.SetNodeState{Term: 1, Node: nodeID(1), State: compute.NodeDown})
				defer w.must(command.SetNodeState{Term: 1, Node: nodeID(1), State: compute.NodeUp})
			}
			events := w.events(streamPath(started), "", 10)
			last := strings.Join(events, "\n")
			if !strings.Contains(last, tc.want) || strings.Contains(last, "jobFinished") != (tc.want != "") {
				t.Errorf("events are %q, want %s", events, tc.want)
			}
		})
	}
}

func TestStreamEndings(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		name string
		end  func(compute.ExecutionID)
		want string
	}{
		{"aborted in the queue", func(id compute.ExecutionID) {
			w.mustDo("POST", "/workloads/abort/"+id.String(), w.adaKey, nil, nil)
		}, `"returnCode":"-1","error":"aborted"`},
		{"exit code", func(id compute.ExecutionID) {
			w.place(id, 1)
			w.begun(id)
			w.ended(id, compute.StatusFailed, compute.ReasonExitCode, 3, time.Second)
			w.logs.finish(id)
		}, `"returnCode":"3","error":"exit_code"`},
		{"output unreadable", func(id compute.ExecutionID) {
			w.place(id, 1)
			w.must(command.LoseAttempts{Term: 1, Node: nodeID(1), Attempts: []command.AttemptRef{{Execution: id, Epoch: 1}}})
			w.logs.finish(id)
		}, `"returnCode":"-1","error":"node_lost: `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			started := w.startStream()
			got := make(chan []string)
			go func() { got <- w.events(streamPath(started), "", 10) }()
			w.eventually("stream", func() bool { return w.streams() == 1 })
			tc.end(started.ExecutionID)
			events := <-got
			if len(events) != 1 || !strings.Contains(events[0], tc.want) {
				t.Errorf("events are %q, want %s", events, tc.want)
			}
			w.eventually("end of the stream", func() bool { return w.streams() == 0 })
		})
	}
}

func TestStreamAccess(t *testing.T) {
	w := newWorld(t)
	mine, other := w.startStream(), w.startStream()
	path := "/api/v1/stream/" + mine.ExecutionID.String()
	_, token, _ := strings.Cut(other.StreamingURL, "token=")
	w.want(401, "", "GET", path, "", nil)
	w.want(401, "", "GET", path+"?token=", "", nil)
	w.want(401, "", "GET", path+"?token="+token, "", nil)
	w.want(404, "", "GET", path, w.bobKey, nil)
	w.want(404, "", "GET", "/api/v1/stream/"+uuidText(99)+"?token=x", w.adaKey, nil)
	w.want(400, "", "GET", streamPath(mine), "", nil, "Last-Event-ID", "x")
	// Without a quorum, what is known here is still read.
	w.mustDo("POST", "/workloads/abort/"+mine.ExecutionID.String(), w.adaKey, nil, nil)
	w.know(func(s *readerState) { s.noLeader = true })
	if got := w.events(streamPath(mine), "", 1); len(got) != 1 {
		t.Errorf("without a leader: %q", got)
	}
}

// uuidText returns the n-th identifier in its text form.
func uuidText(n uint64) string { return uuid(n).String() }

func TestStreamClientGone(t *testing.T) {
	w := newWorld(t)
	started := w.startStream()
	w.place(started.ExecutionID, 1)
	w.logs.write(started.ExecutionID, handler.Line{Seq: 1, Stream: "stdout", Text: []byte("one")})
	if got := w.events(streamPath(started), "", 1); len(got) != 1 {
		t.Fatalf("events are %q", got)
	}
	// The client has hung up: the next line finds out.
	n := uint64(1)
	w.eventually("end of the stream", func() bool {
		n++
		w.logs.write(started.ExecutionID, handler.Line{Seq: n, Stream: "stdout", Text: []byte("more")})
		return w.streams() == 0
	})
}

// TestHangUpIsNoticed hangs up on streams and held answers of executions that
// write nothing: their places are free at once, on a server and through a worker.
func TestHangUpIsNoticed(t *testing.T) {
	w := newWorld(t)
	_, worker := w.newWorker()
	w.listen()
	worker.listen()
	started := w.startStream()
	held := root + "/execution/" + started.ExecutionID.String() + "?wait=60s"
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for _, path := range []string{streamPath(started), held} {
			conn, err := node.dial()
			w.ok(err)
			_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", path, w.adaKey)
			w.ok(err)
			w.eventually("stream", func() bool { return w.streams() == 1 })
			w.ok(conn.Close())
			w.eventually("end of "+path+" on the "+name, func() bool { return w.streams() == 0 })
		}
	}
	// A connection whose client waits for a held answer is used again.
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range 2 {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n",
			strings.Replace(held, "60s", "10ms", 1), w.adaKey)
		w.ok(err)
		resp, err := http.ReadResponse(answers, nil) //nolint:bodyclose // Closed with its connection.
		w.ok(err)
		_, err = io.Copy(io.Discard, resp.Body)
		w.ok(err)
		if resp.StatusCode != 200 || resp.Close {
			t.Errorf("a held answer is %d, and closes the connection: %t", resp.StatusCode, resp.Close)
		}
	}
}

// TestStreamShares gives one organization all streams that it may have: others
// get theirs, and operators their snapshots.
func TestStreamShares(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.Streams = 8 })
	started := w.startStream()
	held := "/execution/" + started.ExecutionID.String() + "?wait=60s"
	var done sync.WaitGroup
	defer done.Wait()
	open := func(begin func()) {
		t.Helper()
		before := w.streams()
		done.Go(begin)
		w.eventually("stream", func() bool { return w.streams() == before+1 })
	}
	open(func() { w.send("GET", held, w.adaKey, nil) }) // All that a key may have,
	w.want(503, "too_many_streams", "GET", held, w.adaKey, nil)
	open(func() { w.events(streamPath(started), "", 1) }) // and all of the organization.
	w.want(503, "too_many_streams", "GET", streamPath(started), "", nil)

	var bobs wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.bobKey, `{"code":"1"}`, &bobs)
	open(func() { w.events(streamPath(bobs), "", 1) })
	w.mustDo("GET", "/admin/raft/snapshot", rootToken, nil, nil)
	w.mustDo("GET", "/user/status", w.adaKey, nil, nil)
	w.mustDo("POST", "/workloads/abort/"+started.ExecutionID.String(), w.adaKey, nil, nil)
	w.mustDo("POST", "/workloads/abort/"+bobs.ExecutionID.String(), w.bobKey, nil, nil)
}

func TestStreamLimit(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.Streams = 1 })
	started := w.startStream()
	done := make(chan []string)
	go func() { done <- w.events(streamPath(started), "", 1) }()
	w.eventually("stream", func() bool { return w.streams() == 1 })
	w.want(503, "too_many_streams", "GET", streamPath(started), "", nil)
	w.mustDo("POST", "/workloads/abort/"+started.ExecutionID.String(), w.adaKey, nil, nil)
	<-done
}

func TestStreamsEndWithTheServer(t *testing.T) {
	w := newWorld(t)
	started := w.startStream()
	done := make(chan []string)
	go func() { done <- w.events(streamPath(started), "", 1) }()
	w.eventually("stream", func() bool { return w.streams() == 1 })
	w.stop()
	if got := <-done; len(got) != 0 {
		t.Errorf("events are %q", got)
	}
}
