package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// TestEndedIsKept checks that the output of an execution that has ended is read once,
// and one that is running each time.
func TestEndedIsKept(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	path := "/execution/" + id.String()
	w.place(id, 1)
	w.begun(id)
	w.logs.write(id, handler.Line{Stream: "stdout", Text: []byte("one")})
	read := func(want string, tails int) {
		t.Helper()
		var got wire.Execution
		w.mustDo("GET", path, w.adaKey, nil, &got)
		if got.Stdout != want || got.Code != "print(1)" || len(got.Warnings) != 0 || w.logs.read() != tails {
			t.Errorf("output %q, code %q, warnings %v, read %d times, want %d", got.Stdout, got.Code, got.Warnings, w.logs.read(), tails)
		}
	}
	read("one\n", 1)
	w.logs.write(id, handler.Line{Stream: "stdout", Text: []byte("two")})
	read("one\ntwo\n", 2)
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)
	w.logs.fail(errors.New("the node is gone"))
	var got wire.Execution
	w.mustDo("GET", path, w.adaKey, nil, &got)
	if len(got.Warnings) != 1 {
		t.Errorf("warnings %v: what could not be read is kept", got.Warnings)
	}
	w.logs.fail(nil)
	read("one\ntwo\n", 4)
	w.logs.fail(errors.New("the node is gone"))
	read("one\ntwo\n", 4)
	w.mustDo("DELETE", path, w.adaKey, nil, nil)
	w.want(404, "not_found", "GET", path, w.adaKey, nil)
}

// TestStaleReadsStayHere checks that a stale read of what is on another node says so.
func TestStaleReadsStayHere(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	w.place(id, 1)
	w.begun(id)
	w.logs.write(id, handler.Line{At: compute.InstantOf(w.clock()), Stream: "stdout", Text: []byte("one")})
	w.logs.move()
	for query, want := range map[string]string{"": "", "?consistency=stale": "on another node"} {
		var got wire.Execution
		w.mustDo("GET", "/execution/"+id.String()+query, w.adaKey, nil, &got)
		text := strings.Join(got.Warnings, " ")
		if (want == "") != (got.Stdout == "one\n") || !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%q: output %q, warnings %q", query, got.Stdout, text)
		}
		var lines wire.Logs
		w.mustDo("GET", "/logs/execution/"+id.String()+query, w.adaKey, nil, &lines)
		text = strings.Join(lines.Warnings, " ")
		if (want == "") != (len(lines.Logs) == 1) || !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%q: lines %v, warnings %q", query, lines.Logs, text)
		}
	}
}

// fail has reads of output fail; nil ends that.
func (l *fakeLogs) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// read returns how often output was read.
func (l *fakeLogs) read() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tails
}

// move has the output be on another node.
func (l *fakeLogs) move() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
}
