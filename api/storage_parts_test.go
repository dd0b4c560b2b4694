package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
)

// TestUploadInParts stores a file in parts, in any order, and refuses what is none.
func TestUploadInParts(t *testing.T) {
	w := newWorld(t)
	var begun wire.StartedUpload
	w.mustDo("POST", "/storage/uploads", w.adaKey, `{"key":"a/large.txt"}`, &begun)
	at := "/storage/uploads/" + begun.UploadID
	first, last := strings.Repeat("x", compute.MinObjectPart), "the end"
	part := func(number any, text string) answer {
		return w.send("PUT", fmt.Sprint(at, "/parts/", number), w.adaKey, text, "Content-Type", "application/octet-stream")
	}
	for number, text := range map[int]string{3: last, 1: first, 2: "small"} {
		if a := part(number, text); a.status != http.StatusOK || !strings.Contains(string(a.body), tagOf(text)) {
			t.Fatalf("part %d: %d %s", number, a.status, a.body)
		}
	}
	for _, number := range []any{0, 10_001, -1, "x"} {
		if a := part(number, "x"); a.status != http.StatusUnprocessableEntity {
			t.Errorf("part %v: %d %s", number, a.status, a.body)
		}
	}
	var state wire.UploadState
	w.mustDo("GET", at, w.adaKey, nil, &state)
	if len(state.Parts) != 3 || state.Key != "a/large.txt" || state.Parts[0].Size != int64(len(first)) {
		t.Errorf("the upload is %+v", state)
	}
	complete := func(key string, numbers ...string) string {
		return fmt.Sprintf(`{"key":%q,"parts":[%s]}`, key, strings.Join(numbers, ","))
	}
	one := func(number int, text string) string {
		return fmt.Sprintf(`{"number":%d,"etag":%q}`, number, tagOf(text))
	}
	for _, test := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"other content", complete("a/large.txt", one(1, "other")), 409, "part_differs"},
		{"no such part", complete("a/large.txt", one(9, first)), 409, "part_differs"},
		{"wrong order", complete("a/large.txt", one(3, last), one(1, first)), 422, ""},
		{"twice", complete("a/large.txt", one(1, first), one(1, first)), 422, ""},
		{"none", complete("a/large.txt"), 422, ""},
		{"a small one in the middle", complete("a/large.txt", one(1, first), one(2, "small"), one(3, last)), 400, "part_too_small"},
		{"another key", complete("b", one(1, first)), 404, "upload_not_found"},
	} {
		if a := w.send("POST", at+"/complete", w.adaKey, test.body); a.status != test.status || !strings.Contains(string(a.body), test.code) {
			t.Errorf("%s: %d %s", test.name, a.status, a.body)
		}
	}
	w.want(404, "upload_not_found", "GET", at, w.bobKey, nil)
	w.want(404, "upload_not_found", "PUT", at+"/parts/1", w.bobKey, "x")
	w.want(404, "upload_not_found", "DELETE", at, w.bobKey, nil)
	body := complete("a/large.txt", one(1, first), one(3, last))
	w.want(412, "precondition_failed", "POST", at+"/complete", w.adaKey, body, "If-Match", `"nothing"`)
	for range 2 { // The second is a repeat.
		a := w.send("POST", at+"/complete", w.adaKey, body, "Idempotency-Key", "once")
		if a.status != http.StatusOK || !strings.Contains(string(a.body), `"key":"a/large.txt"`) {
			t.Fatalf("complete: %d %s", a.status, a.body)
		}
	}
	if a := w.send("GET", "/storage/download/a/large.txt", w.adaKey, nil); string(a.body) != first+last ||
		!strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || !strings.HasSuffix(strings.Trim(a.header.Get("ETag"), `"`), "-2") {
		t.Errorf("it is %d bytes, %v", len(a.body), a.header)
	}
	w.want(404, "upload_not_found", "GET", at, w.adaKey, nil)
	w.want(422, "", "POST", "/storage/uploads", w.adaKey, `{"key":"../a"}`)
	w.mustDo("POST", "/storage/uploads", w.adaKey, `{"key":"given up"}`, &begun)
	w.mustDo("DELETE", "/storage/uploads/"+begun.UploadID, w.adaKey, nil, nil)
	var left []wire.PartialUpload
	if w.mustDo("GET", "/storage/uploads", w.adaKey, nil, &left); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}
