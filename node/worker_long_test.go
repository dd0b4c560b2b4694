//go:build long

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// counting prints a line at a time, so that a stream that loses or repeats one
// shows.
const counting = "import time\nfor i in range(200):\n    print('line', i, flush=True)\n    time.sleep(0.1)\n"

// TestWorkerOutlivesServers kills the servers that a worker depends on, and the
// worker itself, while its code executes and its output is read through
// another worker.
func TestWorkerOutlivesServers(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	b200, h200 := c.AddWorker("b200:1"), c.AddWorker("h200:1")
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, h200.URL)
	root := nodetest.MustClient(t, c.RootToken, b200.URL, h200.URL)
	mustVoters(t, root, 3)
	var started wire.Started
	nodetest.Eventually(t, endWait, "the GPU to be known", func() bool {
		var err error
		started, err = api.Submit(t.Context(), client.Start{Code: counting, ExecutionType: "b200", Timeout: 120})
		return err == nil
	})
	lines, ended := make(chan string, 1024), make(chan error, 1)
	go func() {
		defer close(lines)
		ended <- follow(t.Context(), h200.URL+strings.TrimPrefix(started.StreamingURL, h200.URL), lines)
	}()
	mustLine(t, lines, 0)
	b200.Kill() // Its supervisor and the code live on.
	leader := mustLeader(t, root, c)
	leader.Kill()
	b200.Start()
	want := 1
	for want < 60 {
		mustLine(t, lines, want)
		want++
	}
	leader.Start()
	nodetest.Eventually(t, endWait, "the server to be back", func() bool {
		return nodetest.MustClient(t, "", leader.URL).Ready(t.Context()) == nil
	})
	mustVoters(t, root, 3)
	for _, s := range c.Nodes[:3] { // One after another, so also the one that serves the stream.
		if s == leader {
			continue
		}
		s.Kill()
		for range 10 {
			mustLine(t, lines, want)
			want++
		}
		s.Start()
		nodetest.Eventually(t, endWait, "the server to be back", func() bool {
			return nodetest.MustClient(t, "", s.URL).Ready(t.Context()) == nil
		})
	}
	for want < 200 {
		mustLine(t, lines, want)
		want++
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream through the worker: %v", err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted {
		t.Errorf("it ended as %v", e.Status)
	}
	mustBalance(t, api)
}

// mustLine wants the next line to be number n.
func mustLine(t *testing.T, lines <-chan string, n int) {
	t.Helper()
	select {
	case line, more := <-lines:
		if !more {
			t.Fatalf("the stream ended before line %d", n)
		}
		if line != fmt.Sprintf("line %d\n", n) {
			t.Fatalf("got %q, want line %d", line, n)
		}
	case <-time.After(endWait):
		t.Fatalf("line %d never came", n)
	}
}

// follow reads a stream of output over one connection.
func follow(ctx context.Context, url string, lines chan<- string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream answers %s", resp.Status)
	}
	body := json.NewDecoder(&events{r: resp.Body})
	text := ""
	for {
		var event struct {
			Output *struct {
				Content string `json:"content"`
			} `json:"output"`
			JobFinished any    `json:"jobFinished"`
			Missing     string `json:"output_missing"`
		}
		if err := body.Decode(&event); err != nil {
			return fmt.Errorf("the stream ended without its last event: %w", err)
		}
		if event.JobFinished != nil {
			if text != "" || event.Missing != "" {
				return fmt.Errorf("the stream is said to be whole, but behind %q: %s", text, event.Missing)
			}
			return nil
		}
		text += event.Output.Content // A line may come in parts.
		for {
			line, rest, whole := strings.Cut(text, "\n")
			if !whole {
				break
			}
			lines <- line + "\n"
			text = rest
		}
	}
}

// events passes on the data of server-sent events alone.
type events struct {
	r    io.Reader
	part []byte
	data []byte
}

func (e *events) Read(p []byte) (int, error) {
	for len(e.data) == 0 {
		buf := make([]byte, 4096)
		n, err := e.r.Read(buf)
		e.part = append(e.part, buf[:n]...)
		for {
			line, rest, whole := strings.Cut(string(e.part), "\n")
			if !whole {
				break
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = append(e.data, data...)
			}
			e.part = []byte(rest)
		}
		if err != nil && len(e.data) == 0 {
			return 0, err
		}
	}
	n := copy(p, e.data)
	e.data = e.data[n:]
	return n, nil
}

// mustLeader returns the process that leads.
func mustLeader(t *testing.T, root *client.Client, c *nodetest.Processes) *nodetest.Process {
	t.Helper()
	leader, _ := split(t, c, root)
	return leader
}
