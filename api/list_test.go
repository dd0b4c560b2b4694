package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// manyPaths returns import files with the longest paths, as start bodies have
// them.
func manyPaths(n int) (text string, paths []string) {
	files := map[string]string{}
	for i := range n {
		p := strings.Repeat("d", 240) + "/" + strings.Repeat("e", 240) + fmt.Sprintf("/%04d.py", i)
		paths, files[p] = append(paths, p), ""
	}
	data, err := json.Marshal(files)
	if err != nil {
		panic(err)
	}
	return string(data), paths
}

// TestListsStaySmall starts executions with hundreds of long paths of import
// files. Their records, and a page of them at a server and at a worker, keep
// few; the bundles have all.
func TestListsStaySmall(t *testing.T) {
	const files, rows, rowBytes = 480, 40, 3 << 10
	w := newWorld(t)
	w.upgrade()
	text, paths := manyPaths(files)
	var first wire.Started
	for range rows {
		w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
			"code": "print(1)", "timeout": 120, "import_files": text,
		}, &first)
	}
	_, worker := w.newWorker()
	for name, at := range map[string]*world{"server": w, "worker": worker} {
		for _, path := range []string{"/billing/history?limit=1000", "/workloads/list"} {
			got := at.mustDo("GET", path, w.adaKey, nil, nil)
			if len(got.body) > rows*rowBytes {
				t.Errorf("%s: %d rows of %s have %d bytes", name, rows, path, len(got.body))
			}
			var list []wire.ExecutionSummary
			if path == "/workloads/list" {
				w.ok(json.Unmarshal(got.body, &list))
			} else {
				var page wire.ExecutionHistory
				w.ok(json.Unmarshal(got.body, &page))
				list = page.Executions
			}
			if len(list) != rows {
				t.Fatalf("%s: %s has %d rows, want %d", name, path, len(list), rows)
			}
			var shown []string
			w.ok(json.Unmarshal([]byte(*list[0].LocalImports), &shown))
			if len(shown) != 2 || shown[0] != paths[0] || list[0].Metadata.ImportFiles != files {
				t.Errorf("%s: %s shows %d paths of %d", name, path, len(shown), list[0].Metadata.ImportFiles)
			}
		}
	}
	e, _ := w.machine.View().AnyExecution(first.ExecutionID)
	bundle, err := compute.DecodeBundle(e.Bundle.Inline)
	w.ok(err)
	if len(bundle.ImportFiles) != files {
		t.Errorf("the bundle has %d files, want %d", len(bundle.ImportFiles), files)
	}
}

// TestLongLists reads lists that are longer than one piece, at a server and at a
// worker.
func TestLongLists(t *testing.T) {
	const rows = 300
	w := newWorld(t)
	for range rows {
		w.start("cpu")
	}
	_, worker := w.newWorker()
	for name, at := range map[string]*world{"server": w, "worker": worker} {
		var page wire.ExecutionHistory
		got := at.mustDo("GET", "/billing/history?limit=1000", w.adaKey, nil, &page)
		if len(page.Executions) != rows || page.TotalExecutions != rows || page.Limit != 1000 || len(got.body) < 128<<10 {
			t.Errorf("%s: %d rows of %d in %d bytes", name, len(page.Executions), page.TotalExecutions, len(got.body))
		}
		if kind := got.header.Get("Content-Type"); kind != "application/json" {
			t.Errorf("%s: the list is %s", name, kind)
		}
		seen := map[compute.ExecutionID]bool{}
		for _, e := range page.Executions {
			seen[e.ExecutionID] = true
		}
		if len(seen) != rows {
			t.Errorf("%s: %d different rows, want %d", name, len(seen), rows)
		}
	}
}

// TestWorkloadsArePaged reads the executions that have not ended three at a time. The
// one that the cursor names ends between two pages, and is deleted.
func TestWorkloadsArePaged(t *testing.T) {
	w := newWorld(t)
	var want []compute.ExecutionID
	for range 8 {
		want = append(want, w.start("cpu"))
	}
	slices.Reverse(want)
	_, worker := w.newWorker()
	for _, at := range []*world{w, worker} {
		var got []compute.ExecutionID
		cursor := ""
		for {
			var page []wire.ExecutionSummary
			at.mustDo("GET", "/workloads/list?limit=3"+cursor, w.adaKey, nil, &page)
			for _, e := range page {
				got = append(got, e.ExecutionID)
			}
			if len(page) < 3 {
				break
			}
			last := page[2].ExecutionID
			if at == worker && len(got) == 3 {
				w.mustDo("POST", "/workloads/abort/"+last.String(), w.adaKey, nil, nil)
			}
			if at == worker && len(got) == 6 {
				w.mustDo("POST", "/workloads/abort/"+last.String(), w.adaKey, nil, nil)
				w.mustDo("DELETE", "/execution/"+last.String(), w.adaKey, nil, nil)
			}
			cursor = "&cursor=" + last.String()
		}
		if !slices.Equal(got, want) {
			t.Errorf("the pages have %v, want %v", got, want)
		}
	}
	for _, bad := range []string{"cursor=x", "cursor=" + uuid(7).String(), "limit=0", "limit=1001"} {
		w.want(422, "", "GET", "/workloads/list?"+bad, w.adaKey, nil)
	}
	var foreign []wire.ExecutionSummary
	w.want(422, "", "GET", "/workloads/list?cursor="+want[0].String(), w.bobKey, nil)
	w.mustDo("GET", "/workloads/list", w.bobKey, nil, &foreign)
	if len(foreign) != 0 {
		t.Errorf("another organization sees %d executions", len(foreign))
	}
}

// TestLongListsAreStreams checks that a list which is not sent whole counts as a stream
// while its client takes it.
func TestLongListsAreStreams(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Limits.Streams = 8 })
	var started wire.Started
	for range 300 {
		w.mustDo("POST", "/execution/streaming/start", w.adaKey, `{"code":"1"}`, &started)
	}
	for range 3 { // Each gives its share back.
		w.mustDo("GET", "/billing/history?limit=1000", w.adaKey, nil, nil)
	}
	held := make(chan struct{})
	go func() { // All that a key may have.
		defer close(held)
		w.send("GET", "/execution/"+started.ExecutionID.String()+"?wait=60s", w.adaKey, nil)
	}()
	w.eventually("held answer", func() bool { return w.streams() == 1 })
	if got := w.send("GET", "/billing/history?limit=1000", w.adaKey, nil); got.status != 503 {
		t.Errorf("a long list beside all streams of the key: %d", got.status)
	}
	w.mustDo("GET", "/billing/history?limit=1", w.adaKey, nil, nil)
	w.mustDo("POST", "/workloads/abort/"+started.ExecutionID.String(), w.adaKey, nil, nil)
	<-held
}
