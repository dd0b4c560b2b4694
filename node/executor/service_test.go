package executor_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
)

// serving returns an attempt of code that serves a port.
func (n *node) serving(code string, s compute.Serving) compute.Work {
	n.t.Helper()
	w := n.newWork(compute.Bundle{Code: code})
	w.Execution.Kind, w.Execution.Timeout, w.Execution.Serving = compute.KindReplica, compute.Unlimited, &s
	return w
}

// isReady reports whether the last report on the readiness of an execution says that
// it is ready.
func (s *state) isReady(id compute.ExecutionID) (ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.readiness {
		if r.Execution == id {
			ready = r.Ready
		}
	}
	return ready
}

// mustTalk sends a line to the port of an attempt and returns the answer.
func (n *node) mustTalk(id compute.ExecutionID, line string) string {
	n.t.Helper()
	file, err := n.executor.DialPort(id, 1)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		n.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(answer)
}

// echo answers a line with its port, once the file "on" exists; the word "on" makes it,
// and "off" removes it. GET /health is answered by it.
const echo = `
import os, socket
s = socket.socket(FAMILY, socket.SOCK_STREAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((HOST, int(os.environ["PORT"])))
s.listen(8)
on = True
while True:
    c, _ = s.accept()
    line = c.makefile().readline().strip()
    if line in ("on", "off"): on = line == "on"
    if line.startswith("GET /health "):
        c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n" if on else b"HTTP/1.1 500 No\r\n\r\n")
    else:
        c.sendall(("echo " + line + " " + os.environ["PORT"]).encode())
    c.close()
`

// TestPort reaches code that listens on a port of its own network, on each loopback
// address, with and without a network outside. The executor is another one afterwards.
func TestPort(t *testing.T) {
	for name, test := range map[string]struct {
		family, host string
		network      compute.Network
		health       string
	}{
		"alone":         {"socket.AF_INET", "127.0.0.1", compute.NetworkNone, ""},
		"any address":   {"socket.AF_INET", "0.0.0.0", compute.NetworkEgress, "/health"},
		"IPv6 loopback": {"socket.AF_INET6", "::1", compute.NetworkNone, "/health"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *executor.Config) { c.Network = compute.NetworkEgress })
			code := strings.NewReplacer("FAMILY", test.family, "HOST", `"`+test.host+`"`).Replace(echo)
			w := n.serving(code, compute.Serving{Port: 8200, HealthPath: test.health, ReadinessTimeout: time.Minute})
			w.Execution.Network = test.network
			id := n.place(w)
			await(t, "the code to be ready", func() bool { return n.isReady(id) })
			if got := n.mustTalk(id, "a"); got != "echo a 8200" {
				t.Errorf("got %q", got)
			}
			n.stop()
			n.update(func() { n.readiness = nil })
			n.run()
			await(t, "the next executor to know that it is ready", func() bool { return n.isReady(id) })
			if got := n.mustTalk(id, "b"); got != "echo b 8200" {
				t.Errorf("got %q", got)
			}
			n.update(func() {
				stopped := *n.work[id].Execution
				stopped.Stop = compute.StopHard
				n.work[id] = compute.Work{Attempt: n.work[id].Attempt, Execution: &stopped}
			})
			n.end(id)
			if file, err := n.executor.DialPort(id, 1); compute.CodeOf(err) != compute.CodeUnavailable {
				t.Errorf("after the end it has %v, %v", file, err)
			}
		})
	}
}

// TestNoLongerReady reports that code fails its probe, and that it answers again.
func TestNoLongerReady(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.ProbeEvery = 20 * time.Millisecond })
	code := strings.NewReplacer("FAMILY", "socket.AF_INET", "HOST", `"127.0.0.1"`).Replace(echo)
	id := n.place(n.serving(code, compute.Serving{Port: 1024, HealthPath: "/health", ReadinessTimeout: time.Minute}))
	await(t, "the code to be ready", func() bool { return n.isReady(id) })
	n.mustTalk(id, "off")
	await(t, "the code not to be ready", func() bool { return !n.isReady(id) })
	n.mustTalk(id, "on")
	await(t, "the code to be ready again", func() bool { return n.isReady(id) })
	for _, day := range []int{2, 3} {
		n.update(func() {
			warned := *n.work[id].Execution
			warned.CreditsEnd = compute.InstantOf(time.Date(2030, 1, day, 3, 4, 5, 0, time.UTC))
			n.work[id] = compute.Work{Attempt: n.work[id].Attempt, Execution: &warned}
		})
		await(t, "the end of its credits to be noted", func() bool {
			return n.says(id, fmt.Sprintf("credits end at 2030-01-%02dT03:04:05Z", day))
		})
	}
	if !n.says(id, "not ready: GET /health answers 500") {
		t.Error("its output does not say so")
	}
	n.update(func() {
		stopped := *n.work[id].Execution
		stopped.Stop = compute.StopHard
		n.work[id] = compute.Work{Attempt: n.work[id].Attempt, Execution: &stopped}
	})
	n.end(id)
}

// TestNotReady ends code that is not ready in time, with the cause.
func TestNotReady(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	id := n.place(n.serving("import time; time.sleep(600)", compute.Serving{Port: 1024, ReadinessTimeout: time.Second}))
	o := n.end(id)
	if o.Status != compute.StatusFailed || o.Reason != compute.ReasonNotReady || !strings.Contains(o.Detail, "port 1024") ||
		!strings.Contains(o.Detail, syscall.ECONNREFUSED.Error()) {
		t.Errorf("it ended as %s for %s: %s", o.Status, o.Reason, o.Detail)
	}
	if _, err := n.executor.DialPort(compute.ExecutionID{}, 1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("of no attempt: %v", err)
	}
}
