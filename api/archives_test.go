package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/compute"
	"berth/fsm"
)

// library is where the blobs of archives are.
type library map[compute.Hash][]byte

// Open returns what an archive holds.
func (l library) Open(_ context.Context, a *fsm.Archive) (*fsm.ArchiveFile, error) {
	data, ok := l[a.Blob]
	if !ok {
		return nil, compute.Errorf(compute.CodeUnavailable, "No server has the archive.").Named("archive_missing")
	}
	return fsm.ReadArchive(a, data)
}

// TestArchivedExecutionsAreAnswered holds that every answer about executions is
// the same, byte by byte, before and after they have left the state.
func TestArchivedExecutionsAreAnswered(t *testing.T) {
	l := library{}
	w := newWorld(t, func(c *api.Config) { c.Archives = l })
	w.upgrade()
	parent, children := w.selected()
	w.complete(children[0], 2, time.Second)
	w.complete(children[1], 1, 2*time.Second)
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

// archive leaves so many executions that have ended in the state.
func (w *world) archive(l library, stay int) {
	w.Helper()
	s := w.machine.View().Settings()
	s.MaxFinished = stay
	w.must(fsm.SetSettings{Term: 1, Settings: s})
	for d := w.machine.View().DraftArchive(); d != nil; d = w.machine.View().DraftArchive() {
		l[d.Command.Blob] = d.Blob
		d.Command.Term = 1
		w.must(d.Command)
	}
}
