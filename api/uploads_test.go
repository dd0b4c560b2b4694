package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// trees reads manifests from blobs.
type trees struct{ blobs *fakeBlobs }

func (c trees) Tree(ctx context.Context, manifest compute.Hash) (*compute.Tree, error) {
	data, err := c.blobs.Get(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return compute.DecodeTree(data)
}

func (c trees) Numbers(ctx context.Context, manifest compute.Hash) (map[compute.Hash]int, error) {
	tree, err := c.Tree(ctx, manifest)
	if err != nil {
		return nil, err
	}
	numbers := map[compute.Hash]int{}
	for chunk := range tree.Chunks() {
		numbers[chunk] = len(numbers)
	}
	return numbers, nil
}

func digestOf(text string) string { return compute.Digest(sha256.Sum256([]byte(text))).String() }

// bundle begins a bundle of one file and returns its id and the file's blob.
func (w *world) bundle(key, name, text string) (id, blob string) {
	w.Helper()
	var made wire.Bundle
	w.mustDo("POST", "/bundles", key, map[string]any{
		"files": []any{map[string]any{"path": name, "sha256": digestOf(text), "size": len(text)}},
	}, &made)
	return made.BundleID.String(), digestOf(text)
}

// endedWith has the node say that the code of an execution ended and left files.
func (w *world) endedWith(id compute.ExecutionID, texts map[string]string) {
	w.Helper()
	tree := &compute.Tree{ChunkSize: compute.MaxChunk}
	for name, text := range texts {
		e := compute.TreeEntry{Path: name, Mode: 0o644, Size: int64(len(text)), SHA256: sha256.Sum256([]byte(text))}
		for piece := range slices.Chunk([]byte(text), compute.MaxChunk) {
			hash, err := w.blobs.Put(w.Context(), piece)
			w.ok(err)
			e.Chunks = append(e.Chunks, compute.Digest(hash))
		}
		tree.Entries = append(tree.Entries, e)
	}
	slices.SortFunc(tree.Entries, func(a, b compute.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	data, err := tree.Encode()
	w.ok(err)
	manifest, err := w.blobs.Put(w.Context(), data)
	w.ok(err)
	a := w.attempt(id)
	w.pass(time.Second)
	w.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: compute.StatusCompleted, Ran: true, EndedAt: compute.InstantOf(w.clock()),
		Duration: time.Second, Outputs: &compute.Outputs{
			Manifest: manifest, Count: len(texts), Bytes: tree.Bytes(), Warning: `not in the outputs: "x" is a link`,
		},
	}})
}

// TestBundles sends a bundle, executes it, and sends another one that has most of
// the same files.
func TestBundles(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	file := func(name, text string) any {
		return map[string]any{"path": name, "sha256": digestOf(text), "size": len(text), "mode": 0o755}
	}
	body := map[string]any{"files": []any{
		file("run.sh", "one"), file("lib/a.py", "two"), file("lib/b.py", "two"), file("empty", ""),
		map[string]any{"path": "dir", "dir": true},
		map[string]any{"path": "link", "link": "lib/a.py"},
		map[string]any{"path": "packed", "chunks": []string{digestOf("one")}, "offset": 1, "size": 2},
	}}
	var made, again wire.Bundle
	w.mustDo("POST", "/bundles", w.adaKey, body, &made)
	if len(made.Missing) != 2 {
		t.Fatalf("missing are %v", made.Missing)
	}
	one := "/bundles/" + made.BundleID.String()
	start := map[string]any{"script": "lib/a.py", "bundle_id": made.BundleID, "name": "n"}
	w.want(409, "bundle_not_committed", "POST", "/execution/streaming/start", w.adaKey, start)
	w.want(409, "blobs_missing", "POST", one+"/commit", w.adaKey, nil)
	w.want(400, "blob_differs", "PUT", one+"/blobs/"+digestOf("one"), w.adaKey, "two")
	w.want(404, "blob_unknown", "PUT", one+"/blobs/"+digestOf("three"), w.adaKey, "three")
	w.want(400, "blob_name", "PUT", one+"/blobs/"+strings.ToUpper(digestOf("one")), w.adaKey, "one")
	w.mustDo("PUT", one+"/blobs/"+digestOf("one"), w.adaKey, "one", nil, "Content-Type", "application/octet-stream")
	w.mustDo("POST", "/bundles", w.adaKey, body, &again)
	if again.BundleID != made.BundleID || len(again.Missing) != 1 || again.Missing[0].String() != digestOf("two") {
		t.Errorf("going on: %+v", again)
	}
	for range 2 { // Sending again does no harm.
		w.mustDo("PUT", one+"/blobs/"+digestOf("two"), w.adaKey, "two", nil)
	}
	var done wire.CommittedBundle
	for range 2 {
		w.mustDo("POST", one+"/commit", w.adaKey, nil, &done)
	}
	if done.Files != 7 || done.Size != 11 {
		t.Errorf("committed %+v", done)
	}
	w.want(400, "no_script", "POST", "/execution/streaming/start", w.adaKey,
		map[string]any{"script": "dir", "bundle_id": made.BundleID})
	w.want(404, "bundle_not_found", "POST", "/execution/streaming/start", w.bobKey, start)
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, start, &started)
	e, _ := w.machine.View().AnyExecution(started.ExecutionID)
	if e.Files == nil || e.Files.Bundle != made.BundleID || e.Files.Count != 7 || e.Name != "n" || e.FileName != "a.py" {
		t.Errorf("the record is %+v, files %+v", e, e.Files)
	}
	var got wire.Execution
	w.mustDo("GET", "/execution/"+e.ID.String(), w.adaKey, nil, &got)
	if got.BundleID == nil || *got.BundleID != made.BundleID || got.Script == nil || *got.Script != "lib/a.py" || got.Code != "" {
		t.Errorf("it is shown as %+v", got)
	}
	w.mustDo("POST", "/bundles", w.adaKey, map[string]any{"files": []any{file("x", "two"), file("y", "new")}}, &again)
	if len(again.Missing) != 1 || again.Missing[0].String() != digestOf("new") {
		t.Errorf("of the second bundle %v are missing", again.Missing)
	}
	// The children of a GPU selection get the same files.
	var parent wire.SelectionStarted
	w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey, start, &parent)
	if e, _ := w.machine.View().AnyExecution(parent.ExecutionID); e.Files == nil {
		t.Error("a GPU selection has no files")
	}
}

// TestBundlesOfOthers checks that who knows the hash of another organization's file
// gets nothing for it: not its bytes, and not that it exists.
func TestBundlesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	id, blob := w.bundle(w.adaKey, "secret", "ada's secret")
	w.mustDo("PUT", "/bundles/"+id+"/blobs/"+blob, w.adaKey, "ada's secret", nil)
	w.mustDo("POST", "/bundles/"+id+"/commit", w.adaKey, nil, nil)
	var stolen wire.Bundle
	w.mustDo("POST", "/bundles", w.bobKey, map[string]any{
		"files": []any{map[string]any{"path": "secret", "sha256": blob, "size": len("ada's secret")}},
	}, &stolen)
	if len(stolen.Missing) != 1 || stolen.BundleID.String() == id {
		t.Errorf("another organization has %+v", stolen)
	}
	w.want(409, "blobs_missing", "POST", "/bundles/"+stolen.BundleID.String()+"/commit", w.bobKey, nil)
	for _, ask := range [][2]string{{"PUT", "/blobs/" + blob}, {"POST", "/commit"}} {
		w.want(404, "bundle_not_found", ask[0], "/bundles/"+id+ask[1], w.bobKey, "ada's secret")
	}
}

// TestBadBundles is the table of what no bundle may be.
func TestBadBundles(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	one := func(fields string) string { return `{"files":[{` + fields + `}]}` }
	blob := `"sha256":"` + digestOf("x") + `","size":1`
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"no JSON", `{"files":`, 422, "json_invalid"},
		{"nothing", ``, 422, "missing"},
		{"no files", `{}`, 422, "missing"},
		{"type", one(`"path":1`), 422, "value_error"},
		{"hash", one(`"path":"a","sha256":"zz","size":1`), 422, "value_error"},
		{"no hash", one(`"path":"a","size":1`), 422, "value_error"},
		{"absolute", one(`"path":"/etc/passwd",` + blob), 400, "relative"},
		{"up", one(`"path":"../a",` + blob), 400, "relative"},
		{"up inside", one(`"path":"a/../../b",` + blob), 400, "relative"},
		{"dot", one(`"path":".",` + blob), 400, "relative"},
		{"twice slash", one(`"path":"a//b",` + blob), 400, "relative"},
		{"NUL", one(`"path":"a\u0000",` + blob), 400, "control characters"},
		{"newline", one(`"path":"a\nb",` + blob), 400, "control characters"},
		{"empty path", one(`"path":"",` + blob), 400, "a path has 1 to"},
		{"long path", one(`"path":"` + strings.Repeat("a/", 300) + `b",` + blob), 400, "a path has 1 to"},
		{"long name", one(`"path":"` + strings.Repeat("a", 300) + `",` + blob), 400, "255 bytes"},
		{"deep", one(`"path":"` + strings.Repeat("a/", 40) + `b",` + blob), 400, "at most 32 parts"},
		{"setuid", one(`"path":"a","mode":2541,` + blob), 400, "not only permissions"},
		{"absolute link", one(`"path":"a","link":"/etc/passwd"`), 400, "leaves the bundle"},
		{"link up", one(`"path":"d/a","link":"../../etc"`), 400, "leaves the bundle"},
		{"directory with content", one(`"path":"a","dir":true,` + blob), 400, "more than one of"},
		{"link and directory", one(`"path":"a","dir":true,"link":"b"`), 400, "more than one of"},
		{"negative", one(`"path":"a","sha256":"` + digestOf("x") + `","size":-1`), 400, "out of range"},
		{"offset", one(`"path":"a","offset":4194304,` + blob), 400, "chunks of at most"},
		{"too many chunks", one(`"path":"a","size":1,"chunks":["` + digestOf("x") + `","` + digestOf("y") + `"]`), 400, "chunks of at most"},
		{"larger than a chunk", one(`"path":"a","size":4194305,"sha256":"` + digestOf("x") + `"`), 400, "chunks of at most"},
		{"too large together", `{"files":[{"path":"a","size":1048576,"sha256":"` + digestOf("x") + `"},{"path":"b",` + blob + `}]}`, 413, "1048576 bytes together"},
		{"twice", `{"files":[{"path":"a",` + blob + `},{"path":"a",` + blob + `}]}`, 400, "twice"},
		{"through a file", `{"files":[{"path":"a",` + blob + `},{"path":"a/b",` + blob + `}]}`, 400, "which is not a directory"},
		{"through a link", `{"files":[{"path":"a","link":"b"},{"path":"a/b",` + blob + `}]}`, 400, "which is not a directory"},
		{"too many", `{"files":[` + strings.Repeat(`{"path":"a","dir":true},`, compute.MaxTreeEntries) + `{"path":"b","dir":true}]}`, 413, "at most 50000 files"},
	} {
		a := w.send("POST", "/bundles", w.adaKey, tt.body)
		if a.status != tt.status || !bytes.Contains(a.body, []byte(tt.want)) {
			t.Errorf("%s: %d %.300s, want %d %s", tt.name, a.status, a.body, tt.status, tt.want)
		}
	}
	if n := len(w.blobs.data); n != 0 {
		t.Errorf("bundles that are refused store %d blobs", n)
	}
}

// TestProgramsWaitForTheirFormat checks that nothing is accepted that a server of
// an older version would ignore.
func TestProgramsWaitForTheirFormat(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{`{"module":"x"}`, `{"code":"1","args":["x"]}`, `{"code":"1","stdin":"x"}`, `{"code":"1","name":"x"}`} {
		w.want(409, "upgrade_required", "POST", "/execution/streaming/start", w.adaKey, body)
	}
	w.want(409, "upgrade_required", "POST", "/bundles", w.adaKey, `{"files":[]}`)
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, `{"code":"1"}`, nil)
}

// TestOutputs lists and reads what an execution left, until it is deleted or too
// old.
func TestOutputs(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	big := strings.Repeat("0123456789abcdef", compute.MaxChunk/16) + "tail"
	id := w.start("gpu.h100")
	all := "/execution/" + id.String() + "/outputs"
	w.want(404, "output_not_found", "GET", all+"/m.txt", w.adaKey, nil)
	w.place(id, 1)
	w.begun(id)
	w.endedWith(id, map[string]string{"m.txt": "model", "ck/big é.bin": big, "empty": ""})
	var list []wire.Output
	w.mustDo("GET", all, w.adaKey, nil, &list)
	if len(list) != 3 || list[0].Name != "ck/big é.bin" || list[0].Size != int64(len(big)) || list[2].SHA256.String() != digestOf("model") {
		t.Fatalf("the list is %+v", list)
	}
	var got wire.Execution
	for range 2 { // Cached and not.
		w.mustDo("GET", "/execution/"+id.String(), w.adaKey, nil, &got)
		if len(got.Outputs) != 3 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "is a link") {
			t.Errorf("the record has %v, %v", got.Outputs, got.Warnings)
		}
	}
	for _, tt := range []struct {
		name, path, ask string
		status          int
		want, part      string
	}{
		{"whole", "m.txt", "", 200, "model", ""},
		{"empty", "empty", "", 200, "", ""},
		{"slash", "ck/big%20%C3%A9.bin", "", 200, big, ""},
		{"escaped slash", "ck%2Fbig%20%C3%A9.bin", "", 200, big, ""},
		{"over a border", "ck/big%20%C3%A9.bin", "bytes=4194300-4194305", 206, "cdefta", "bytes 4194300-4194305/4194308"},
		{"from", "m.txt", "bytes=3-", 206, "el", "bytes 3-4/5"},
		{"last", "m.txt", "bytes=-2", 206, "el", "bytes 3-4/5"},
		{"past the end", "m.txt", "bytes=1-100", 206, "odel", "bytes 1-4/5"},
		{"several", "m.txt", "bytes=0-0,2-2", 200, "model", ""},
		{"no range", "m.txt", "lines=1-2", 200, "model", ""},
	} {
		a := w.send("GET", all+"/"+tt.path, w.adaKey, nil, "Range", tt.ask)
		if a.status != tt.status || string(a.body) != tt.want || a.header.Get("Content-Range") != tt.part ||
			a.header.Get("Content-Length") != fmt.Sprint(len(tt.want)) ||
			!strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment; filename") {
			t.Errorf("%s: %d with %d bytes, %v", tt.name, a.status, len(a.body), a.header)
		}
	}
	w.want(400, "range_not_satisfiable", "GET", all+"/m.txt", w.adaKey, nil, "Range", "bytes=5-")
	tag := w.mustDo("GET", all+"/m.txt", w.adaKey, nil, nil).header.Get("ETag")
	if a := w.send("GET", all+"/m.txt", w.adaKey, nil, "If-None-Match", tag); a.status != http.StatusNotModified {
		t.Errorf("the same again: %d", a.status)
	}
	for _, name := range []string{"nothing", "ck", "../m.txt", "..%2fm.txt", "ck%2f..%2fm.txt"} {
		if a := w.send("GET", all+"/"+name, w.adaKey, nil); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	w.want(200, "", "POST", all+"/store", w.adaKey, `{"prefix":"runs/1/"}`)
	for name, want := range map[string]string{"m.txt": "model", "empty": "", "ck/big%20%C3%A9.bin": big} {
		if a := w.send("GET", "/storage/download/runs/1/"+name, w.adaKey, nil); a.status != 200 || string(a.body) != want {
			t.Errorf("stored as runs/1/%s: %d with %d bytes", name, a.status, len(a.body))
		}
	}
	w.want(422, "", "POST", all+"/store", w.adaKey, `{"prefix":"a/../b"}`)
	w.want(404, "", "POST", all+"/store", w.bobKey, `{"prefix":"runs/1/"}`)
	w.want(404, "", "GET", all, w.bobKey, nil)
	w.want(404, "", "GET", all+"/m.txt", w.bobKey, nil)
	for range int(compute.OutputsKept/(5*time.Minute)) + 1 { // One entry cannot advance the clock further.
		w.must(command.Clock{Term: 1, At: w.machine.View().Now().Add(5 * time.Minute)})
	}
	w.want(404, "output_not_found", "GET", all+"/m.txt", w.adaKey, nil)
	w.mustDo("GET", "/execution/"+id.String(), w.adaKey, nil, &got)
	if len(got.Outputs) != 0 {
		t.Errorf("expired are %v", got.Outputs)
	}
}

// TestDeletedOutputs checks that outputs go with their execution.
func TestDeletedOutputs(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	id := w.start("gpu.h100")
	w.place(id, 1)
	w.begun(id)
	w.endedWith(id, map[string]string{"m.txt": "model"})
	live := func() int { return len(slices.Collect(w.machine.View().Trees())) }
	if live() != 1 {
		t.Errorf("%d trees are live", live())
	}
	w.mustDo("DELETE", "/execution/"+id.String(), w.adaKey, nil, nil)
	w.want(404, "", "GET", "/execution/"+id.String()+"/outputs/m.txt", w.adaKey, nil)
	if live() != 0 {
		t.Errorf("%d trees are live", live())
	}
}
