package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// slowObjects stores files that take half an hour each to come.
type slowObjects struct {
	fakeObjects

	ahead *time.Duration
	seen  func(text string)
}

func (o slowObjects) Write(ctx context.Context, w handler.ObjectWrite) (compute.Content, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(w.Body, first); err != nil {
		return compute.Content{}, err
	}
	*o.ahead += 30 * time.Minute
	o.setClock(*o.ahead)
	rest, err := io.ReadAll(w.Body)
	if err != nil {
		return compute.Content{}, err
	}
	text := string(first) + string(rest)
	o.seen(text)
	w.Body = strings.NewReader(text)
	return o.fakeObjects.Write(ctx, w)
}

// TestLongBulkUploadKeepsItsFirstFiles holds that the state knows the content of files
// that are finished and not yet published, before it is an hour old, and that they count
// once.
func TestLongBulkUploadKeepsItsFirstFiles(t *testing.T) {
	var w *world
	var early []string
	w = newWorld(t, func(c *handler.Config) {
		slow := slowObjects{ahead: new(time.Duration), seen: func(text string) {
			if text == "content 0" {
				return
			}
			var known []compute.Hash
			for blob := range w.machine.View().ObjectBlobs() {
				known = append(known, blob)
			}
			for i := range 4 {
				before := fmt.Sprint("content ", i)
				if before == text {
					break
				}
				if !slices.Contains(known, sha256.Sum256([]byte(before))) {
					early = append(early, before+" during "+text)
				}
			}
		}}
		slow.fakeObjects = c.Objects.(fakeObjects)
		c.Objects = slow
	})
	w.must(command.SetBucketLimits{Actor: command.Actor{Root: true}, Org: w.actor("ada").Org, MaxBytes: 4 * int64(len("content 0"))})
	form := ""
	for i := range 4 {
		form += strings.TrimSuffix(formOf("files", fmt.Sprint(i), fmt.Sprint("content ", i)), "--form--\r\n")
	}
	var out wire.BulkUpload
	a := w.post("/storage/upload-bulk", w.adaKey, form+"--form--\r\n")
	w.ok(json.Unmarshal(a.body, &out))
	if a.status != 200 || out.SuccessfulUploads != 4 {
		t.Errorf("it ends with %d %s", a.status, a.body)
	}
	if len(early) > 0 {
		t.Errorf("not kept are %q", early)
	}
	for u := range w.machine.View().ObjectUploads(w.actor("ada").Org) {
		t.Errorf("upload %s is left", u.ID)
	}
}

// TestBulkUploadFailsIfItsFilesCannotBeKept has as many uploads as there may be, so that the
// first files of a long bulk upload cannot be kept. It fails as a whole, and publishes none.
func TestBulkUploadFailsIfItsFilesCannotBeKept(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) {
		c.Objects = slowObjects{fakeObjects: c.Objects.(fakeObjects), ahead: new(time.Duration), seen: func(string) {}}
	})
	w.post("/storage/upload", w.adaKey, formOf("file", "first", "content")) // It makes the bucket.
	for i := range compute.MaxObjectUploads {
		start := command.StartObjectUpload{Actor: w.actor("ada"), Upload: compute.ObjectUpload{Key: fmt.Sprint("k", i)}}
		start.Upload.ID.UUID = compute.UUID{9, byte(i >> 8), byte(i)}
		w.must(start)
	}
	form := ""
	for i := range 6 {
		form += strings.TrimSuffix(formOf("files", fmt.Sprint(i), fmt.Sprint("content ", i)), "--form--\r\n")
	}
	if a := w.post("/storage/upload-bulk", w.adaKey, form+"--form--\r\n"); a.status < 400 || !strings.Contains(string(a.body), "too_many_uploads") {
		t.Errorf("it ends with %d %s", a.status, a.body)
	}
	for o := range w.machine.View().Objects(w.actor("ada").Org, "") {
		if o.Key != "first" {
			t.Errorf("%s is published", o.Key)
		}
	}
}
