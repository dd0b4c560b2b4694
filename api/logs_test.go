package api_test

import (
	"slices"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// TestLogs reads lines of one execution, of a selection's sub-executions and of all
// of a person's executions.
func TestLogs(t *testing.T) {
	w := newWorld(t)
	now := w.machine.View().Now()
	write := func(id compute.ExecutionID, ago time.Duration, texts ...string) {
		for _, text := range texts {
			w.logs.write(id, handler.Line{Seq: 1, At: now.Add(-ago), Stream: "stdout", Text: []byte(text)})
		}
	}
	first, second := w.start("gpu.h100"), w.start("cpu")
	never := w.start("gpu.a100")
	for _, id := range []compute.ExecutionID{first, second} {
		w.place(id, 1)
		w.begun(id)
	}
	write(first, 90*time.Minute, "old")
	write(first, time.Minute, "one", "three \xff")
	write(second, 30*time.Second, "two")
	w.ended(first, compute.StatusCompleted, compute.ReasonNone, 0, time.Second)

	for _, tt := range []struct {
		path, key string
		want      []string
		total     int
	}{
		{"/logs/execution/" + first.String(), w.adaKey, []string{"old", "one", "three \uFFFD"}, 3},
		{"/logs/execution/" + first.String() + "?hours=1&limit=1", w.adaKey, []string{"three \uFFFD"}, 2},
		{"/logs/execution/" + first.String() + "?search=on", w.adaKey, []string{"one"}, 1},
		{"/logs/execution/" + never.String(), w.adaKey, []string{}, 0},
		{"/logs/user", w.adaKey, []string{"one", "three \uFFFD", "two"}, 3},
		{"/logs/user?limit=2&hours=24&level=info", w.adaKey, []string{"three \uFFFD", "two"}, 4},
		{"/logs/user", w.bobKey, []string{}, 0},
	} {
		var got wire.Logs
		w.mustDo("GET", tt.path, tt.key, nil, &got)
		texts := []string{}
		for _, l := range got.Logs {
			texts = append(texts, l.Message)
		}
		if !slices.Equal(texts, tt.want) || got.Total != tt.total || len(got.Warnings) != 0 {
			t.Errorf("%s: got %q of %d, %v", tt.path, texts, got.Total, got.Warnings)
		}
	}
	var got wire.Logs
	w.mustDo("GET", "/logs/execution/"+second.String(), w.adaKey, nil, &got)
	e, _ := w.machine.View().AnyExecution(second)
	want := wire.LogLine{
		Timestamp: now.Add(-30 * time.Second), Message: "two", Level: "info", ExecutionID: second, UserID: e.User,
		Hostname: "n1", Labels: wire.LogLabels{Stream: "stdout", Attempt: 1, HardwareProfile: "cpu"},
	}
	if len(got.Logs) != 1 || got.Logs[0] != want {
		t.Errorf("got %+v, want %+v", got.Logs, want)
	}

	w.want(404, "not_found", "GET", "/logs/execution/"+first.String(), w.bobKey, nil)
	w.want(404, "not_found", "GET", "/logs/execution/x", w.adaKey, nil)
	for _, query := range []string{"limit=0", "limit=10001", "hours=0", "hours=169", "level=loud", "limit=many"} {
		w.want(422, "", "GET", "/logs/execution/"+first.String()+"?"+query, w.adaKey, nil)
	}
	for _, query := range []string{"limit=5001", "hours=25"} {
		w.want(422, "", "GET", "/logs/user?"+query, w.adaKey, nil)
	}
	w.must(command.Clock{Term: 1, At: now.Add(4 * time.Minute)})
	w.logs.fail(compute.Errorf(compute.CodeInternal, "bad sector"))
	if a := w.send("GET", "/logs/user", w.adaKey, nil); a.status != 500 {
		t.Errorf("output that cannot be read: %d %s", a.status, a.body)
	}
}
