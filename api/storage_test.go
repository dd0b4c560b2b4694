package api_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// fakeObjects keeps the content of objects as blobs, in the clear.
type fakeObjects struct{ *world }

func (o fakeObjects) Bucket(ctx context.Context, view **fsm.View, actor command.Actor) (*compute.Bucket, error) {
	if b := (*view).Bucket(actor.Org); b != nil {
		return b, nil
	}
	if _, _, err := o.Propose(ctx, command.CreateBucket{Actor: actor, Bucket: compute.Bucket{Sealed: []byte(masterPrefix)}}); err != nil {
		return nil, err
	}
	*view = o.machine.View()
	return (*view).Bucket(actor.Org), nil
}

func (o fakeObjects) Write(ctx context.Context, w handler.ObjectWrite) (compute.Content, error) {
	data, err := io.ReadAll(w.Body)
	if err != nil {
		return compute.Content{}, err
	}
	c := compute.Content{Size: int64(len(data)), ETag: md5.Sum(data), SHA256: sha256.Sum256(data)} //nolint:gosec // An ETag.
	if len(data) > 0 {
		c.Whole = len(data) <= compute.MaxChunk
		c.Blob, err = o.blobs.Put(ctx, data)
	}
	return c, err
}

func (o fakeObjects) Meta(_ context.Context, _ *compute.Bucket, object *compute.Object) (*compute.ObjectMeta, error) {
	return &compute.ObjectMeta{Type: object.Type}, nil
}

func (o fakeObjects) Copy(ctx context.Context, _ *compute.Bucket, object *compute.Object, w io.Writer, from, length int64) error {
	var data []byte
	if object.Size > 0 {
		var err error
		if data, err = o.blobs.Get(ctx, object.Blob); err != nil {
			return err
		}
	}
	_, err := w.Write(data[from : from+length])
	return err
}

func (o fakeObjects) SealMeta(_ *compute.Bucket, meta *compute.ObjectMeta) ([]byte, error) {
	return []byte(meta.Type), nil
}

func (o fakeObjects) OpenMeta(_ *compute.Bucket, sealed []byte) (*compute.ObjectMeta, error) {
	return &compute.ObjectMeta{Type: string(sealed)}, nil
}

func (o fakeObjects) Join(
	ctx context.Context, b *compute.Bucket, parts []*compute.ObjectPart, _ *compute.ObjectMeta,
) (compute.Content, error) {
	var data []byte
	for _, p := range parts {
		more, err := o.blobs.Get(ctx, p.Blob)
		if err != nil {
			return compute.Content{}, err
		}
		data = append(data, more...)
	}
	return o.Write(ctx, handler.ObjectWrite{Bucket: b, Body: bytes.NewReader(data)})
}

// formType is the type of the bodies that formOf returns.
const formType = "multipart/form-data; boundary=form"

// formOf returns a form with a file.
func formOf(field, name, content string) string {
	return "--form\r\nContent-Disposition: form-data; name=\"" + field + "\"; filename=\"" + name + "\"\r\n\r\n" +
		content + "\r\n--form--\r\n"
}

// withField returns a form that has a field too, in front.
func withField(form, name, value string) string {
	return "--form\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n" + form
}

// post sends a form.
func (w *world) post(path, key, form string, header ...string) answer {
	w.Helper()
	return w.fetch("POST", root+path, key, []byte(form), append(header, "Content-Type", formType))
}

// store stores a file.
func (w *world) store(key, name, content string) {
	w.Helper()
	if a := w.post("/storage/upload?key="+url.QueryEscape(name), key, formOf("file", "x", content)); a.status != http.StatusOK {
		w.Fatalf("store %s: %d %s", name, a.status, a.body)
	}
}

func tagOf(content string) string {
	sum := md5.Sum([]byte(content)) //nolint:gosec // An ETag.
	return hex.EncodeToString(sum[:])
}

// TestUpload stores files with a key in the query, in a field on either side of the
// file, and as the file's name.
func TestUpload(t *testing.T) {
	w := newWorld(t)
	file := formOf("file", "dir/name.txt", "content")
	behind := strings.TrimSuffix(file, "--form--\r\n") + strings.TrimSuffix(withField("", "key", "behind"), "") + "--form--\r\n"
	for _, test := range []struct{ query, form, key string }{
		{"?key=a%2Fb", file, "a/b"},
		{"", withField(file, "key", "in/front"), "in/front"},
		{"", behind, "behind"},
		{"", file, "dir/name.txt"},
		{"?key=first", withField(file, "key", "second"), "first"},
	} {
		a := w.post("/storage/upload"+test.query, w.adaKey, test.form)
		out := decodeObject(w, a.body)
		if a.status != 200 || out["key"] != test.key || out["size"] != 7.0 || out["etag"] != tagOf("content") || out["message"] == "" {
			t.Errorf("%q: %d %s", test.key, a.status, a.body)
		}
		got := w.fetch("GET", root+"/storage/download/"+url.PathEscape(test.key), w.adaKey, nil, nil)
		if got.status != 200 || string(got.body) != "content" {
			t.Errorf("%q is %d %s", test.key, got.status, got.body)
		}
	}
	sum := sha256.Sum256([]byte("content"))
	good := withField(file, "sha256", hex.EncodeToString(sum[:]))
	if a := w.post("/storage/upload", w.adaKey, good); a.status != 200 {
		t.Errorf("with its checksum: %d %s", a.status, a.body)
	}
}

// TestBadUploads holds what is answered to forms that cannot be stored, and that nothing
// is stored of them.
func TestBadUploads(t *testing.T) {
	w := newWorld(t)
	file := formOf("file", "name", "content")
	for _, test := range []struct {
		name, path, form, code string
		status                 int
	}{
		{"no form", "/storage/upload", "", "bad_request", 400},
		{"ends early", "/storage/upload", file[:len(file)-len("tent\r\n--form--\r\n")], "bad_request", 400},
		{"another boundary", "/storage/upload", strings.ReplaceAll(file, "--form", "--other"), "bad_request", 400},
		{"no file", "/storage/upload", withField("--form--\r\n", "key", "a"), "", 422},
		{"two files", "/storage/upload", strings.TrimSuffix(file, "--form--\r\n") + file, "several_files", 400},
		{"checksum", "/storage/upload", withField(file, "sha256", strings.Repeat("0", 64)), "checksum_differs", 400},
		{"long key", "/storage/upload?key=" + strings.Repeat("k", 1025), file, "", 422},
		{"long key in a field", "/storage/upload", withField(file, "key", strings.Repeat("k", 1025)), "", 422},
		{"key that is no UTF-8", "/storage/upload?key=%ff", file, "", 422},
		{"key with NUL", "/storage/upload?key=a%00b", file, "", 422},
		{"key that climbs", "/storage/upload?key=a/../b", file, "", 422},
		{"name that climbs", "/storage/upload", formOf("file", "../../etc/passwd", "x"), "", 422},
		{"long field", "/storage/upload", withField(file, "key", strings.Repeat("k", 5000)), "", 422},
		{"bad type", "/storage/upload", withField(file, "content_type", "no type"), "", 422},
		{"many fields", "/storage/upload", strings.Repeat(withField("", "a", "b"), 1200) + file, "too_many_files", 413},
		{"bulk without files", "/storage/upload-bulk", withField("--form--\r\n", "folder_prefix", "a"), "", 422},
		{"bulk that ends early", "/storage/upload-bulk", file[:len(file)-len("tent\r\n--form--\r\n")], "bad_request", 400},
	} {
		a := w.post(test.path, w.adaKey, test.form)
		if a.status != test.status || test.code != "" && a.code() != test.code {
			t.Errorf("%s: %d %s, want %d %s", test.name, a.status, a.body, test.status, test.code)
		}
	}
	if a := w.fetch("POST", root+"/storage/upload", w.adaKey, []byte("{}"), []string{"Content-Type", "application/json"}); a.status != 415 {
		t.Errorf("JSON: %d %s", a.status, a.body)
	}
	w.blobs.err = compute.Errorf(compute.CodeNoSpace, "full")
	if a := w.post("/storage/upload?key=a", w.adaKey, file); a.status != 507 {
		t.Errorf("a full disk: %d %s", a.status, a.body)
	}
	if n := len(w.files(w.adaKey, "")); n != 0 {
		t.Errorf("%d files are stored", n)
	}
}

// files returns the files of the caller.
func (w *world) files(key, query string) (files []wire.File) {
	w.Helper()
	w.mustDo("GET", "/storage/list-files"+query, key, nil, &files)
	return files
}

// TestDownloads holds the headers, ranges and conditions of downloads.
func TestDownloads(t *testing.T) {
	w := newWorld(t)
	w.store(w.adaKey, "page.html", "<script>1</script>")
	tag := `"` + tagOf("<script>1</script>") + `"`
	const path = "/storage/download/page.html"
	a := w.want(200, "", "GET", path, w.adaKey, nil)
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "ETag": tag, "Content-Length": "18", "Accept-Ranges": "bytes",
		"Content-Disposition": "attachment; filename=page.html", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Last-Modified": begin.Format(http.TimeFormat),
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, test := range []struct {
		name, value, body string
		status            int
	}{
		{"Range", "bytes=1-6", "script", 206},
		{"Range", "bytes=-9", "</script>", 206},
		{"Range", "bytes=12-", "cript>", 206},
		{"Range", "bytes=99-", "", 400},
		{"Range", "lines=1-2", "<script>1</script>", 200},
		{"If-None-Match", tag, "", 304},
		{"If-None-Match", `"other", W/` + tag, "", 304},
		{"If-None-Match", "*", "", 304},
		{"If-None-Match", `"other"`, "<script>1</script>", 200},
		{"If-Match", tag, "<script>1</script>", 200},
		{"If-Match", `"other"`, "", 412},
		{"If-Match", "W/" + tag, "", 412},
		{"If-Match", `""`, "", 412},
		{"If-Match", "*", "<script>1</script>", 200},
		{"If-Match", `"other", ` + tag, "<script>1</script>", 200},
		{"If-Match", `"a,` + tagOf("<script>1</script>") + `"`, "", 412},
		{"If-None-Match", `""`, "<script>1</script>", 200},
		{"If-None-Match", `"a,` + tagOf("<script>1</script>") + `"`, "<script>1</script>", 200},
	} {
		a := w.fetch("GET", root+path, w.adaKey, nil, []string{test.name, test.value})
		if a.status != test.status || a.status < 300 && string(a.body) != test.body {
			t.Errorf("%s: %s: %d %q, want %d %q", test.name, test.value, a.status, a.body, test.status, test.body)
		}
	}
	a = w.fetch("GET", root+path, w.adaKey, nil, []string{"Range", "bytes=1-6", "If-Range", `"other"`})
	if a.status != 200 || len(a.body) != 18 {
		t.Errorf("a part of another file: %d %q", a.status, a.body)
	}
	w.want(404, "file_not_found", "GET", path, w.bobKey, nil)
	w.want(404, "file_not_found", "GET", "/storage/download/nothing", w.adaKey, nil)
}

// TestFileKeys stores and reads keys that URLs encode, each decoded once.
func TestFileKeys(t *testing.T) {
	w := newWorld(t)
	for i, key := range []string{
		"a b", "a%2Fb", "a%252Fb", "ä/ö", "a?b#c", "a+b", "a/", "/a", "a//b", "日本/語", "a;b=c", `q"uote'`, "...", "a/.hidden", "~", "%00",
	} {
		content := fmt.Sprint("content ", i)
		w.store(w.adaKey, key, content)
		a := w.fetch("GET", root+"/storage/download/"+url.PathEscape(key), w.adaKey, nil, nil)
		if a.status != 200 || string(a.body) != content {
			t.Errorf("%q: %d %q", key, a.status, a.body)
		}
	}
	a := w.fetch("GET", root+"/storage/download/a%2Fplain", w.adaKey, nil, nil)
	w.store(w.adaKey, "a/plain", "x")
	if b := w.fetch("GET", root+"/storage/download/a/plain", w.adaKey, nil, nil); a.status != 404 || b.status != 200 {
		t.Errorf("with slashes as they are: %d, %d", a.status, b.status)
	}
}

// TestPathPayloads has keys that try to climb out of somewhere: nothing is stored under
// one with a segment of dots, and none reads a file of the machine.
func TestPathPayloads(t *testing.T) {
	w := newWorld(t)
	targets := []string{"etc/passwd", "etc/shadow", "proc/self/environ", "var/lib/berth/keys/master.key", "windows/win.ini"}
	climbs := []string{
		"../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "%252e%252e%252f", "..%c0%af", "%c0%ae%c0%ae/", "..%ef%bc%8f", "....//",
		"..;/", "..\\", "..%5c", "%2e%2e%5c", "..%255c", ".%2e/", "%2e./", "..%00/", "..%0a/", "..%09/", "/../", "//../", "./../", "\u2025/",
	}
	sent := 0
	for _, target := range targets {
		for _, climb := range climbs {
			for depth := range 5 {
				payload := strings.Repeat(climb, depth+1) + target
				sent++
				for _, method := range []string{"GET", "DELETE"} {
					verb := map[string]string{"GET": "download", "DELETE": "delete"}[method]
					req, err := http.NewRequestWithContext(t.Context(), method, w.url, nil)
					w.ok(err)
					req.URL.Opaque = root + "/storage/" + verb + "/" + strings.NewReplacer("\\", "%5C", "\u2025", "%E2%80%A5").Replace(payload)
					req.Header.Set("Authorization", "Bearer "+w.adaKey)
					resp, err := w.client.Do(req)
					w.ok(err)
					body, err := io.ReadAll(resp.Body)
					w.ok(err)
					w.ok(resp.Body.Close())
					if resp.StatusCode < 400 || bytes.Contains(body, []byte("root:")) {
						t.Errorf("%s %s: %d %s", method, payload, resp.StatusCode, body)
					}
				}
				w.post("/storage/upload?key="+payload, w.adaKey, formOf("file", "x", "x"))
			}
		}
	}
	for _, f := range w.files(w.adaKey, "?max_files=10000") {
		for segment := range strings.SplitSeq(strings.ReplaceAll(f.Key, "\\", "/"), "/") {
			if segment == ".." || segment == "." {
				t.Errorf("stored as %q", f.Key)
			}
		}
	}
	if sent < 500 {
		t.Errorf("%d payloads are too few", sent)
	}
}

// TestListFiles reads pages, prefixes and bad cursors.
func TestListFiles(t *testing.T) {
	w := newWorld(t)
	for i := range 25 {
		w.store(w.adaKey, fmt.Sprintf("d%d/%02d", i%2, i), strings.Repeat("x", i))
	}
	w.store(w.bobKey, "d0/bob", "x")
	var keys []string
	for cursor := ""; ; {
		var page []wire.File
		a := w.mustDo("GET", "/storage/list-files?prefix=d0/&max_files=5&cursor="+cursor, w.adaKey, nil, &page)
		for _, f := range page {
			keys = append(keys, f.Key)
			if f.LastModified != compute.InstantOf(begin) || len(f.ETag) != 32 {
				t.Errorf("%+v", f)
			}
		}
		if cursor = a.header.Get("X-Next-Cursor"); cursor == "" {
			break
		}
	}
	if len(keys) != 13 || keys[0] != "d0/00" || keys[12] != "d0/24" {
		t.Errorf("listed are %q", keys)
	}
	if a := w.mustDo("GET", "/storage/list-files?prefix=none", w.adaKey, nil, nil); string(a.body) != "[]" {
		t.Errorf("nothing is %s", a.body)
	}
	for _, query := range []string{"max_files=0", "max_files=10001", "cursor=%25", "prefix=%00", "prefix=%ff", "prefix=" + strings.Repeat("p", 1025)} {
		w.want(422, "", "GET", "/storage/list-files?"+query, w.adaKey, nil)
	}
}

// TestDeleteFiles deletes files and folders.
func TestDeleteFiles(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"a/1", "a/b/2", "ab", "c"} {
		w.store(w.adaKey, key, "x")
	}
	w.store(w.bobKey, "a/1", "x")
	w.want(404, "file_not_found", "DELETE", "/storage/delete/a", w.adaKey, nil)
	w.want(200, "", "DELETE", "/storage/delete/c", w.adaKey, nil)
	w.want(404, "folder_not_found", "DELETE", "/storage/delete-folder/none", w.adaKey, nil)
	for _, empty := range []string{"", "%2F", "%2F%2F"} {
		if a := w.send("DELETE", "/storage/delete-folder/"+empty, w.adaKey, nil); a.status < 400 {
			t.Errorf("an empty prefix %q: %d %s", empty, a.status, a.body)
		}
	}
	var out wire.DeletedFiles
	w.mustDo("DELETE", "/storage/delete-folder/a/", w.adaKey, nil, &out)
	if left := w.files(w.adaKey, ""); out.Deleted != 2 || len(left) != 1 || left[0].Key != "ab" {
		t.Errorf("%d deleted, left are %+v", out.Deleted, left)
	}
	if n := len(w.files(w.bobKey, "")); n != 1 {
		t.Errorf("another organization has %d files left", n)
	}
	for i := range 2100 {
		w.must(command.PutObject{Actor: w.actor("ada"), Object: compute.Object{Key: fmt.Sprintf("many/%04d", i)}})
	}
	w.mustDo("DELETE", "/storage/delete-folder/many", w.adaKey, nil, &out)
	if out.Deleted != 2100 {
		t.Errorf("%d of 2100 deleted", out.Deleted)
	}
}

// actor returns a user as an actor in the own organization.
func (w *world) actor(name string) command.Actor {
	w.Helper()
	u, ok := w.machine.View().UserByEmail(name + "@example.com")
	if !ok {
		w.Fatalf("there is no %s", name)
	}
	return command.Actor{User: u.ID, Org: w.machine.View().Memberships(u.ID)[0].Org, TokenVersion: u.TokenVersion}
}

// TestBulkUpload stores several files, of which some cannot be.
func TestBulkUpload(t *testing.T) {
	w := newWorld(t)
	form := ""
	for _, name := range []string{"a.txt", "sub/dir/b.bin", "../bad", "/leading"} {
		form += strings.TrimSuffix(formOf("files", name, "content of "+name), "--form--\r\n")
	}
	form += withField("--form--\r\n", "folder_prefix", "/up/load/")
	var out wire.BulkUpload
	a := w.post("/storage/upload-bulk", w.adaKey, form)
	w.ok(json.Unmarshal(a.body, &out))
	if a.status != 200 || out.TotalFiles != 4 || out.SuccessfulUploads != 3 || out.FailedUploads != 1 || out.Results[2].Status != "error" ||
		out.Results[2].ErrorMessage == nil || out.Results[0].ErrorMessage != nil || out.Results[1].Size != 24 {
		t.Errorf("%d %s", a.status, a.body)
	}
	var keys []string
	for _, f := range w.files(w.adaKey, "") {
		keys = append(keys, f.Key)
	}
	if got := strings.Join(keys, " "); got != "up/load/a.txt up/load/leading up/load/sub/dir/b.bin" {
		t.Errorf("stored are %s", got)
	}
	w.must(command.SetBucketLimits{Actor: command.Actor{Root: true}, Org: w.actor("ada").Org, MaxObjects: 4})
	form = ""
	for _, name := range []string{"1", "2", "3"} {
		form += strings.TrimSuffix(formOf("files", name, "x"), "--form--\r\n")
	}
	a = w.post("/storage/upload-bulk", w.adaKey, form+"--form--\r\n")
	w.ok(json.Unmarshal(a.body, &out))
	if a.status != 200 || out.SuccessfulUploads != 1 || out.FailedUploads != 2 {
		t.Errorf("over the limit: %d %s", a.status, a.body)
	}
}

// TestNoBytesBeyondQuotas holds that a file for which the quota leaves no space is refused
// before its bytes are stored, or as soon as they are too many.
func TestNoBytesBeyondQuotas(t *testing.T) {
	w := newWorld(t)
	w.want(200, "", "PUT", "/admin/storage/ada-lab", rootToken, `{"max_bytes":10000000}`)
	w.store(w.adaKey, "a", strings.Repeat("a", 9_000_000))
	before := len(w.blobs.data)
	refused := func(name string, a answer) {
		t.Helper()
		if a.status != 403 || a.code() != "storage_quota_exceeded" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// These say how many bytes come and send few of them.
	begun := func(method, path, kind, text string, length int) answer {
		return w.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			method, root+path, w.adaKey, kind, length, text))
	}
	form := strings.TrimSuffix(formOf("file", "b", "b"), "\r\n--form--\r\n")
	refused("a file", begun("POST", "/storage/upload?key=b", formType, form, 6_000_000))
	refused("one with a key of its own", begun("POST", "/storage/upload", formType, withField(form, "key", "b"), 6_000_000))
	var made wire.StartedUpload
	w.mustDo("POST", "/storage/uploads", w.adaKey, `{"key":"c"}`, &made)
	refused("a part", begun("PUT", "/storage/uploads/"+made.UploadID+"/parts/1", "application/octet-stream", "c", 1_000_001))
	refused("one byte", w.post("/storage/upload?key=b", w.adaKey, formOf("file", "b", strings.Repeat("b", 1_000_001))))
	var out wire.BulkUpload
	a := w.post("/storage/upload-bulk", w.adaKey, formOf("files", "a", strings.Repeat("d", 10_000_001)))
	if w.ok(json.Unmarshal(a.body, &out)); out.FailedUploads != 1 {
		t.Errorf("several files: %d %s", a.status, a.body)
	}
	if got := len(w.blobs.data); got != before {
		t.Errorf("%d blobs became %d", before, got)
	}
	w.store(w.adaKey, "a", strings.Repeat("e", 10_000_000))
}

// TestStorageLimits refuses what is over the limits of the operator.
func TestStorageLimits(t *testing.T) {
	w := newWorld(t)
	w.want(200, "", "PUT", "/admin/storage/bob-lab", rootToken, `{"max_bytes":10,"max_bytes_per_user":10}`)
	w.want(404, "", "PUT", "/admin/storage/none", rootToken, `{}`)
	w.want(422, "", "PUT", "/admin/storage/bob-lab", rootToken, `{"max_bytes":-1}`)
	w.want(403, "", "PUT", "/admin/storage/bob-lab", w.bobKey, `{}`)
	w.store(w.bobKey, "a", "12345678")
	if a := w.post("/storage/upload?key=b", w.bobKey, formOf("file", "b", "12345")); a.status != 403 || a.code() != "storage_quota_exceeded" {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.store(w.bobKey, "a", "1234567890")
	var usage wire.StorageUsage
	w.mustDo("GET", "/storage/usage", w.bobKey, nil, &usage)
	if usage != (wire.StorageUsage{Files: 1, Bytes: 10, OwnBytes: 10, MaxFiles: 1_000_000, MaxBytes: 10, OwnMaximum: 10}) {
		t.Errorf("used is %+v", usage)
	}
}

// TestUploadConditions stores a file only if none is there, or a certain one, and copies
// one.
func TestUploadConditions(t *testing.T) {
	w := newWorld(t)
	put := func(content string, header ...string) answer {
		return w.post("/storage/upload?key=a", w.adaKey, formOf("file", "a", content), header...)
	}
	tag := func(content string) string { return `"` + tagOf(content) + `"` }
	for _, test := range []struct {
		content, name, value string
		status               int
	}{
		{"1", "If-Match", "*", 412},
		{"1", "If-Match", `""`, 412},
		{"1", "If-None-Match", "*", 200},
		{"2", "If-None-Match", "*", 412},
		{"2", "If-Match", tag("1"), 200},
		{"3", "If-Match", tag("1"), 412},
		{"3", "If-Match", `""`, 412},
		{"3", "If-Match", "W/" + tag("2"), 412},
		{"3", "If-Match", `"x", ` + tag("1"), 412},
		{"3", "If-None-Match", `"x", W/` + tag("2"), 412},
		{"3", "If-Match", tag("x") + "," + tag("2"), 200},
		{"4", "If-Match", "*", 200},
		{"5", "If-None-Match", `"x", W/` + tag("3"), 200},
		{"2", "If-Match", tagOf("5"), 200},
	} {
		if a := put(test.content, test.name, test.value); a.status != test.status {
			t.Errorf("%s %s: %d %s, want %d", test.name, test.value, a.status, a.body, test.status)
		}
	}
	if a := w.post("/storage/upload?key=none", w.adaKey, formOf("file", "a", "x"), "If-None-Match", `"x"`); a.status != 200 {
		t.Errorf("a file that is not there is another one: %d %s", a.status, a.body)
	}
	if a := put("7", "If-Match", tag("2"), "If-None-Match", "*"); a.status != 412 {
		t.Errorf("both conditions: %d %s", a.status, a.body)
	}
	for _, test := range []struct {
		name, value string
		status      int
	}{
		{"If-None-Match", "*", 412},
		{"If-Match", tag("y"), 412},
		{"If-Match", tag("y") + ", " + tag("x"), 200},
	} {
		w.want(test.status, "", "POST", "/storage/copy", w.adaKey, `{"from":"a","to":"none"}`, test.name, test.value)
	}
	w.want(412, "precondition_failed", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-Match", `"x"`)
	w.want(412, "precondition_failed", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-Match", `""`)
	w.want(412, "precondition_failed", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-None-Match", "*")
	w.want(412, "precondition_failed", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-None-Match", "W/"+tag("2"))
	w.want(200, "", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-Match", `"x", `+tag("2"))
	w.want(404, "file_not_found", "DELETE", "/storage/delete/none", w.adaKey, nil, "If-Match", "*")
	w.want(200, "", "POST", "/storage/copy", w.adaKey, `{"from":"a","to":"b/c"}`)
	w.want(404, "file_not_found", "POST", "/storage/copy", w.adaKey, `{"from":"none","to":"b"}`)
	w.want(404, "file_not_found", "POST", "/storage/copy", w.bobKey, `{"from":"a","to":"b"}`)
	w.want(422, "", "POST", "/storage/copy", w.adaKey, `{"from":"a","to":"../b"}`)
	if a := w.send("GET", "/storage/download/b/c", w.adaKey, nil); string(a.body) != "2" {
		t.Errorf("the copy is %q", a.body)
	}
}

// TestUploadRepeats holds that a repeat with its Idempotency-Key changes nothing, and
// that another file under the same one is refused.
func TestUploadRepeats(t *testing.T) {
	w := newWorld(t)
	put := func(content string) answer {
		return w.post("/storage/upload?key=a", w.adaKey, formOf("file", "a", content), "Idempotency-Key", "k")
	}
	first := put("1")
	w.store(w.adaKey, "a", "2")
	w.pass(time.Second)
	if again := put("1"); first.status != 200 || again.status != 200 || !bytes.Equal(first.body, again.body) {
		t.Errorf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	if a := w.send("GET", "/storage/download/a", w.adaKey, nil); string(a.body) != "2" {
		t.Errorf("the repeat made it %q", a.body)
	}
	if other := put("3"); other.status != 409 || other.code() != "idempotency_key_reused" {
		t.Errorf("another file: %d %s", other.status, other.body)
	}
}

// TestStoredImports starts code with stored files beside it, as they were then.
func TestStoredImports(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.store(w.adaKey, "in/data.bin", "\xff\x00 binary")
	w.store(w.bobKey, "bobs", "x")
	start := func(key, files string, more ...string) answer {
		w.Helper()
		body := map[string]any{"code": "print(1)", "import_files": files}
		return w.send("POST", "/execution/streaming/start", key, body, more...)
	}
	a := start(w.adaKey, `{"d.bin":"storage://in/data.bin","t.txt":"text"}`)
	var started wire.Started
	w.ok(json.Unmarshal(a.body, &started))
	e, ok := w.machine.View().AnyExecution(started.ExecutionID)
	if !ok {
		t.Fatalf("%d %s", a.status, a.body)
	}
	bundle, err := compute.DecodeBundle(e.Bundle.Inline)
	if err != nil || string(bundle.StoredFiles["d.bin"]) != "\xff\x00 binary" || bundle.ImportFiles["t.txt"] != "text" ||
		len(bundle.ImportFiles) != 1 || e.ImportCount() != 2 {
		t.Errorf("it has %+v, %v", bundle, err)
	}
	for _, files := range []string{`{"a":"storage://nothing"}`, `{"a":"storage://bobs"}`, `{"a":"storage://"}`} {
		if a := start(w.adaKey, files); a.status != 422 {
			t.Errorf("%s: %d %s", files, a.status, a.body)
		}
	}
	fields := decodeObject(w, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey, map[string]any{"name": "x", "scopes": []string{"executions:write"}}, nil).body)
	if a := start(fields["plaintext_key"].(string), `{"a":"storage://in/data.bin"}`); a.status != 403 || a.code() != "scope_missing" {
		t.Errorf("without the scope: %d %s", a.status, a.body)
	}
	w.store(w.adaKey, "large", strings.Repeat("x", 9<<20))
	if a := start(w.adaKey, `{"a":"storage://large"}`); a.status != 413 {
		t.Errorf("a large one: %d %s", a.status, a.body)
	}
}

// TestStorageScope holds which keys may use files.
func TestStorageScope(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	keyWith := func(scope string) string {
		fields := decodeObject(w, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey, map[string]any{"name": scope, "scopes": []string{scope}}, nil).body)
		return fields["plaintext_key"].(string)
	}
	may, mayNot := keyWith("storage"), keyWith("executions:write")
	w.store(may, "a", "x")
	w.want(200, "", "GET", "/storage/download/a", may, nil)
	w.want(403, "scope_missing", "GET", "/storage/download/a", mayNot, nil)
	if a := w.post("/storage/upload?key=b", mayNot, formOf("file", "b", "x")); a.status != 403 {
		t.Errorf("stored: %d %s", a.status, a.body)
	}
}
