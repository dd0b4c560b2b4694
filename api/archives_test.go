package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/fsm/command"
)

// library is where the blobs of archives are.
type library map[compute.Hash][]byte

// Open returns what an archive holds.
func (l library) Open(_ context.Context, a *archive.Record) (*archive.File, error) {
	data, ok := l[a.Blob]
	if !ok {
		return nil, compute.Errorf(compute.CodeUnavailable, "No server has the archive.").Named("archive_missing")
	}
	return archive.Read(a, data)
}

// shelvedFamily returns a world with archives and an execution of two parts that
// has ended.
func shelvedFamily(t *testing.T) (l library, w *world, parent compute.ExecutionID, children []compute.ExecutionID) {
	t.Helper()
	l = library{}
	w = newWorld(t, func(c *handler.Config) { c.Archives = l })
	w.upgrade()
	parent, children = w.selected()
	w.complete(children[0], 2, time.Second)
	w.complete(children[1], 1, 2*time.Second)
	return l, w, parent, children
}

// TestArchivedExecutionsAreAnswered holds that every answer about executions is
// the same, byte by byte, before and after they have left the state.
func TestArchivedExecutionsAreAnswered(t *testing.T) {
	l, w, parent, children := shelvedFamily(t)
	var ids []compute.ExecutionID
	for i := range 6 {
		ids = append(ids, w.start("t4"))
		w.complete(ids[i], 3, time.Duration(i+1)*time.Second)
	}
	live := w.start("t4")
	paths := []string{
		"/billing/history", "/billing/history?limit=3&offset=2", "/billing/history?limit=4&offset=7",
		"/billing/history?type=gpu_selection", "/billing/history?parent=" + parent.String(),
		"/billing/history?status=completed&offset=5", "/billing/credits",
		"/execution/gpu_selection/" + parent.String(), "/execution/gpu_selection/" + parent.String() + "?format=csv",
		"/execution/gpu_selection/" + parent.String() + "/status", "/execution/" + live.String(),
	}
	for _, id := range append([]compute.ExecutionID{parent, children[1]}, ids...) {
		paths = append(paths, "/execution/"+id.String(), "/execution/"+id.String()+"/timing")
	}
	answers := func(key string) (out []string) {
		for _, path := range paths {
			a := w.send("GET", path, key, nil)
			if key == w.adaKey && a.status == http.StatusServiceUnavailable {
				t.Errorf("GET %s = %d %s", path, a.status, a.body)
			}
			out = append(out, fmt.Sprintf("GET %s = %d %s %s", path, a.status, a.header.Get("Etag"), a.body))
		}
		return out
	}
	ada, bob := answers(w.adaKey), answers(w.bobKey)
	w.archive(l, 2)
	if archives, executions := w.machine.View().Archived(); archives == 0 || executions != 7 {
		t.Fatalf("%d executions in %d archives, want 7", executions, archives)
	}
	for i, got := range answers(w.adaKey) {
		if got != ada[i] {
			t.Errorf("after they were archived\n%s\nbefore\n%s", got, ada[i])
		}
	}
	for i, got := range answers(w.bobKey) {
		if got != bob[i] {
			t.Errorf("another organization: after they were archived\n%s\nbefore\n%s", got, bob[i])
		}
	}
	w.want(409, "archived", "DELETE", "/execution/"+ids[0].String(), w.adaKey, nil)
	w.want(409, "already_ended", "POST", "/workloads/abort/"+ids[0].String(), w.adaKey, nil)
	clear(l)
	for _, path := range []string{"/billing/history", "/execution/" + ids[0].String(), "/execution/gpu_selection/" + parent.String()} {
		w.want(503, "archive_missing", "GET", path, w.adaKey, nil)
	}
	w.want(404, "", "GET", "/execution/"+ids[0].String(), w.bobKey, nil)
	w.mustDo("GET", "/execution/"+ids[5].String(), w.adaKey, nil, nil)
	if a := w.mustDo("GET", "/billing/history?limit=1", w.adaKey, nil, nil); !strings.Contains(string(a.body), live.String()) {
		t.Errorf("the newest page without its archives is %s", a.body)
	}
}

// racing archives whatever it can right before a command of a kind is applied.
type racing struct {
	edge.Proposer

	before func(command.Command)
}

func (p racing) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	p.before(cmd)
	return p.Proposer.Propose(ctx, cmd)
}

// TestArchivedWhileItIsChanged holds that an execution which goes to an archive
// between the check of it and its stop or its end is answered as one in there.
func TestArchivedWhileItIsChanged(t *testing.T) {
	l := library{}
	var w *world
	var gone func(command.Command) bool // The command that comes too late.
	w = newWorld(t, func(c *handler.Config) {
		c.Archives = l
		c.Proposer = racing{c.Proposer, func(cmd command.Command) {
			if gone != nil && gone(cmd) {
				gone = nil
				w.archive(l, 1)
			}
		}}
	})
	w.upgrade()
	end := func() compute.ExecutionID {
		id := w.start("t4")
		w.complete(id, 3, time.Second)
		return id
	}
	for range 2 {
		end()
	}
	for _, test := range []struct {
		late   func(command.Command) bool
		method string
		path   string
		code   string
	}{
		{isCommand[command.StopExecution], "POST", "/workloads/abort/", "already_ended"},
		{isCommand[command.DeleteExecution], "DELETE", "/execution/", "archived"},
	} {
		id := end()
		end()
		gone = test.late
		w.want(409, test.code, test.method, test.path+id.String(), w.adaKey, nil)
		if gone != nil {
			t.Errorf("%s: nothing was archived meanwhile", test.path)
		}
		w.want(404, "", test.method, test.path+compute.ExecutionID{UUID: uuid(77)}.String(), w.adaKey, nil)
	}
}

// isCommand reports whether cmd has the payload C.
func isCommand[C any](cmd command.Command) bool {
	_, is := cmd.(C)
	return is
}

// TestHistoryOfAParent holds that the sub-executions of one are found without the
// archives that cannot have them, and that those of nobody cost nothing.
func TestHistoryOfAParent(t *testing.T) {
	l, w, parent, children := shelvedFamily(t)
	w.complete(w.start("t4"), 3, time.Second)
	w.archive(l, 1)
	family := len(l)
	w.pass(time.Second) // Identifiers begin with the time.
	for i := range 3 {
		w.complete(w.start("t4"), 3, time.Duration(i+1)*time.Second)
		w.archive(l, 1)
	}
	if family == 0 || len(l) <= family {
		t.Fatalf("%d archives, %d of them of the GPU selection", len(l), family)
	}
	for a := range w.machine.View().Archives() {
		if a.Executions == 1 {
			delete(l, a.Blob)
		}
	}
	var page wire.ExecutionHistory
	w.mustDo("GET", "/billing/history?parent="+parent.String(), w.adaKey, nil, &page)
	if len(page.Executions) != len(children) {
		t.Errorf("%d sub-executions, want %d", len(page.Executions), len(children))
	}
	clear(l)
	for _, query := range []string{"parent=" + (compute.ExecutionID{UUID: uuid(77)}).String(), "type=docker"} {
		w.mustDo("GET", "/billing/history?"+query, w.adaKey, nil, &page)
		if len(page.Executions) != 0 {
			t.Errorf("%s: %d executions of nobody", query, len(page.Executions))
		}
	}
}

// archive leaves so many executions that have ended in the state.
func (w *world) archive(l library, stay int) {
	w.Helper()
	s := w.machine.View().Settings()
	s.MaxFinished = stay
	w.must(command.SetSettings{Term: 1, Settings: s})
	for d := w.machine.View().DraftArchive(nil); d != nil; d = w.machine.View().DraftArchive(nil) {
		l[d.Command.Blob] = d.Blob
		d.Command.Term = 1
		w.must(d.Command)
	}
}

// late is a Reader that tells of nothing new while it holds.
type late struct {
	edge.Reader

	hold *atomic.Pointer[chan struct{}] // Closed once it goes on; nil for now.
}

func (l late) Wait(ctx context.Context, after uint64) (*fsm.View, error) {
	if hold := l.hold.Load(); hold != nil {
		select {
		case <-*hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.Reader.Wait(ctx, after)
}

// brittle is a library that nobody can read for a while.
type brittle struct {
	library

	failures atomic.Int32 // That are left.
}

func (b *brittle) Open(ctx context.Context, a *archive.Record) (*archive.File, error) {
	if b.failures.Add(-1) >= 0 {
		return nil, compute.Errorf(compute.CodeUnavailable, "Not now.").Named("archive_unreadable")
	}
	return b.library.Open(ctx, a)
}

// TestStreamOverAnArchive has a node learn at once that an execution ended and was
// archived, while it cannot read the archive yet. The stream ends as the execution
// ended, and such a stream is opened without a quorum.
func TestStreamOverAnArchive(t *testing.T) {
	l := &brittle{library: library{}}
	var hold atomic.Pointer[chan struct{}]
	w := newWorld(t, func(c *handler.Config) { c.Archives, c.Reader = l, late{c.Reader, &hold} })
	w.upgrade()
	started, other := w.startStream(), w.startStream()
	behind := make(chan struct{})
	hold.Store(&behind)
	got := make(chan []string)
	go func() { got <- w.events(streamPath(started), "", 10) }()
	w.eventually("stream", func() bool { return w.streams() == 1 })
	for _, id := range []compute.ExecutionID{started.ExecutionID, other.ExecutionID} {
		w.place(id, 1)
		w.must(command.LoseAttempts{Term: 1, Node: nodeID(1), Attempts: []command.AttemptRef{{Execution: id, Epoch: 1}}})
		w.logs.finish(id)
	}
	w.archive(l.library, 1)
	if len(l.library) != 1 {
		t.Fatalf("%d archives", len(l.library))
	}
	l.failures.Store(2) // For the one who waits for the end, and the one who reads output.
	close(behind)
	if events := <-got; len(events) != 1 || !strings.Contains(events[0], "node_lost") {
		t.Errorf("events are %q", events)
	}
	l.failures.Store(0) // A reader that learns of the end first may have used up only one.
	w.know(func(s *readerState) { s.noLeader = true })
	if events := w.events(streamPath(started), "", 10); len(events) != 1 || !strings.Contains(events[0], "node_lost") {
		t.Errorf("without a quorum events are %q", events)
	}
}

// TestRepeatsAfterTheArchive holds that a repeat gets its first answer when the
// execution has gone to an archive since, which nobody needs to open for it.
func TestRepeatsAfterTheArchive(t *testing.T) {
	l := library{}
	w := newWorld(t, func(c *handler.Config) { c.Archives = l })
	w.upgrade()
	stopped, removed := w.start("t4"), w.start("t4")
	w.complete(removed, 3, time.Second)
	stop := w.mustDo("POST", "/workloads/abort/"+stopped.String(), w.adaKey, nil, nil, "Idempotency-Key", "s")
	remove := w.mustDo("DELETE", "/execution/"+removed.String(), w.adaKey, nil, nil, "Idempotency-Key", "d")
	w.complete(w.start("t4"), 3, time.Second) // The newest stays.
	w.archive(l, 1)
	clear(l)
	w.want(503, "archive_missing", "POST", "/workloads/abort/"+stopped.String(), w.adaKey, nil, "Idempotency-Key", "another")
	again := w.mustDo("POST", "/workloads/abort/"+stopped.String(), w.adaKey, nil, nil, "Idempotency-Key", "s")
	if string(again.body) != string(stop.body) {
		t.Errorf("abort = %s, again = %s", stop.body, again.body)
	}
	again = w.mustDo("DELETE", "/execution/"+removed.String(), w.adaKey, nil, nil, "Idempotency-Key", "d")
	if string(again.body) != string(remove.body) {
		t.Errorf("delete = %s, again = %s", remove.body, again.body)
	}
}
