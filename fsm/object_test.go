package fsm_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// bucketWorld returns a world in which two organizations have buckets.
func bucketWorld(t testing.TB) *world {
	w := newestWorld(t)
	for _, a := range []command.Actor{w.ada, w.other} {
		w.must(command.CreateBucket{Actor: a, Bucket: compute.Bucket{Sealed: []byte("key")}})
	}
	return w
}

// object returns the command that stores an object of some bytes.
func (w *world) object(a command.Actor, key string, size int64) command.PutObject {
	o := compute.Object{Key: key, Size: size, ETag: compute.ETag{byte(size)}, Blob: compute.Hash{byte(size), 1}, Whole: true}
	return command.PutObject{Actor: a, Object: o}
}

func (w *world) keys(org compute.OrgID, from string) (keys []string) {
	for o := range w.view().Objects(org, from) {
		keys = append(keys, o.Key)
	}
	return keys
}

// TestObjects stores, lists, replaces and deletes objects, each in its organization.
func TestObjects(t *testing.T) {
	w := newestWorld(t)
	w.refused(w.object(w.ada, "a", 1), compute.CodeConflict, "no_bucket")
	w.must(command.CreateBucket{Actor: w.ada, Bucket: compute.Bucket{Sealed: []byte("first")}})
	if r := w.must(command.CreateBucket{Actor: w.ada, Bucket: compute.Bucket{Sealed: []byte("second")}}); !r.Repeat {
		t.Error("a second bucket was made")
	}
	if got := string(w.view().Bucket(w.org).Sealed); got != "first" {
		t.Errorf("the key of the bucket is %q", got)
	}
	w.must(command.CreateBucket{Actor: w.other, Bucket: compute.Bucket{Sealed: []byte("key")}})
	for i, key := range []string{"b", "a/2", "a/1", "a", "c"} {
		w.must(w.object(w.ada, key, int64(i+1)))
	}
	w.must(w.object(w.other, "a/1", 100))
	if got := w.keys(w.org, "a/"); !slices.Equal(got, []string{"a/1", "a/2", "b", "c"}) {
		t.Errorf("behind a/ are %q", got)
	}
	w.must(w.object(w.ada, "b", 9))
	if o, ok := w.view().Object(w.org, "b"); !ok || o.Size != 9 || o.User != w.ada.User || o.At != w.now {
		t.Errorf("b is %+v", o)
	}
	if got := w.view().ObjectUse(w.org, w.ada.User); got != (compute.ObjectUse{Objects: 5, Bytes: 23}) {
		t.Errorf("stored is %+v", got)
	}
	if r := w.must(command.DeleteObjects{Actor: w.ada, Keys: []string{"a", "nothing"}}); r.Count != 1 {
		t.Errorf("%d deleted", r.Count)
	}
	if r := w.must(command.DeleteObjects{Actor: w.ada, Prefix: "a/"}); r.Count != 2 {
		t.Errorf("%d deleted below a/", r.Count)
	}
	if r := w.must(command.DeleteObjects{Actor: w.ada, Keys: []string{"c"}, Match: "other"}); r.Count != 0 {
		t.Errorf("%d deleted in spite of the condition", r.Count)
	}
	if got := w.keys(w.org, ""); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("left are %q", got)
	}
	if got := w.keys(w.other.Org, ""); !slices.Equal(got, []string{"a/1"}) {
		t.Errorf("the other organization has %q", got)
	}
	w.refused(command.DeleteObjects{Actor: w.ada}, compute.CodeInvalid, "object_keys")
	w.refused(w.object(w.root, "a", 1), compute.CodeForbidden, "no_org")
}

// TestBadObjects holds that objects that no bucket can have are refused.
func TestBadObjects(t *testing.T) {
	w := bucketWorld(t)
	for _, key := range []string{"", "a\x00", "..", "a/../b", "a/./b", `a\..\b`, "a\nb", strings.Repeat("k", 1025)} {
		w.refused(w.object(w.ada, key, 1), compute.CodeInvalid, "object")
	}
	w.must(w.object(w.ada, strings.Repeat("k", 1024), 1))
	for name, change := range map[string]func(*compute.Object){
		"negative":   func(o *compute.Object) { o.Size = -1 },
		"no content": func(o *compute.Object) { o.Blob, o.Whole = compute.Hash{}, false },
		"long chunk": func(o *compute.Object) { o.Size = compute.MaxChunk + 1 },
		"long type":  func(o *compute.Object) { o.Type = strings.Repeat("t", compute.MaxObjectType+1) },
	} {
		c := w.object(w.ada, name, 1)
		change(&c.Object)
		w.refused(c, compute.CodeInvalid, "object")
	}
}

// TestObjectConditions stores objects on conditions, and copies of others.
func TestObjectConditions(t *testing.T) {
	w := bucketWorld(t)
	with := func(size int64, change func(*command.PutObject)) command.PutObject {
		c := w.object(w.ada, "a", size)
		change(&c)
		return c
	}
	w.refused(with(1, func(c *command.PutObject) { c.Match = "*" }), compute.CodeConflict, "precondition_failed")
	w.must(with(1, func(c *command.PutObject) { c.Absent = true }))
	w.refused(with(2, func(c *command.PutObject) { c.Absent = true }), compute.CodeConflict, "precondition_failed")
	o, _ := w.view().Object(w.org, "a")
	w.refused(with(2, func(c *command.PutObject) { c.Match = "0" }), compute.CodeConflict, "precondition_failed")
	w.must(with(2, func(c *command.PutObject) { c.Match = o.Tag() }))
	o, _ = w.view().Object(w.org, "a")
	w.must(command.PutObject{Actor: w.ada, Object: compute.Object{Key: "b", Size: 2, Blob: o.Blob}, From: "a", FromBlob: o.Blob})
	w.refused(command.PutObject{Actor: w.ada, Object: compute.Object{Key: "c", Size: 2, Blob: o.Blob}, From: "a", FromBlob: compute.Hash{9}},
		compute.CodeNotFound, "file_not_found")
	w.refused(command.PutObject{Actor: w.other, Object: compute.Object{Key: "c", Size: 2, Blob: o.Blob}, From: "a", FromBlob: o.Blob},
		compute.CodeNotFound, "file_not_found")
}

// TestObjectUploads follows an upload in parts: its parts count, are replaced and become
// an object, and one that was aborted or forgotten leaves nothing.
func TestObjectUploads(t *testing.T) {
	w := bucketWorld(t)
	start := func(a command.Actor, key string) compute.ObjectUploadID {
		u := compute.ObjectUpload{ID: compute.ObjectUploadID{UUID: w.uuid()}, Key: key}
		return compute.ObjectUploadID{UUID: w.must(command.StartObjectUpload{Actor: a, Upload: u}).ID}
	}
	part := func(a command.Actor, id compute.ObjectUploadID, n int, size int64) command.PutObjectPart {
		return command.PutObjectPart{Actor: a, Part: compute.ObjectPart{Upload: id, Number: n, Size: size, Blob: compute.Hash{byte(n), 2}}}
	}
	id := start(w.ada, "big")
	w.must(part(w.ada, id, 1, 10))
	w.must(part(w.ada, id, 2, 10))
	w.must(part(w.ada, id, 2, 7))
	w.refused(part(w.ada, id, 0, 1), compute.CodeInvalid, "object_part")
	w.refused(part(w.ada, id, 10_001, 1), compute.CodeInvalid, "object_part")
	w.refused(part(w.other, id, 3, 1), compute.CodeNotFound, "upload_not_found")
	if got := w.view().ObjectUse(w.org, compute.UserID{}); got != (compute.ObjectUse{Bytes: 17}) {
		t.Errorf("stored is %+v", got)
	}
	whole := w.object(w.ada, "big", 17)
	whole.Upload, whole.Revision = id, 2
	w.refused(whole, compute.CodeConflict, "upload_changed")
	whole.Revision = 3
	w.must(whole)
	w.refused(whole, compute.CodeNotFound, "upload_not_found")
	w.refused(part(w.ada, id, 3, 1), compute.CodeNotFound, "upload_not_found")
	id = start(w.ada, "other")
	w.must(part(w.ada, id, 1, 10))
	w.refused(command.AbortObjectUpload{Actor: w.other, Upload: id}, compute.CodeNotFound, "upload_not_found")
	w.must(command.AbortObjectUpload{Actor: w.ada, Upload: id})
	w.must(part(w.ada, start(w.ada, "forgotten"), 1, 10))
	w.pass(compute.ObjectUploadKept + time.Hour)
	if got := w.view().ObjectUse(w.org, w.ada.User); got != (compute.ObjectUse{Objects: 1, Bytes: 17}) {
		t.Errorf("stored is %+v", got)
	}
}

// TestObjectSpace reports as much space as commands then accept.
func TestObjectSpace(t *testing.T) {
	w := bucketWorld(t)
	space := func(key string) int64 { return w.view().ObjectSpace(w.ada, key) }
	if got := space("a"); got < compute.MaxObjectSize {
		t.Errorf("without limits there is space for %d bytes", got)
	}
	w.must(w.object(w.ada, "a", 40))
	w.must(w.object(w.ada, "b", 30))
	for _, limits := range []command.SetBucketLimits{{MaxBytes: 100}, {UserMaxBytes: 100}, {MaxBytes: 100, UserMaxBytes: 200}} {
		limits.Actor, limits.Org = w.root, w.org
		w.must(limits)
		if a, c, all := space("a"), space("c"), space(""); a != 70 || c != 30 || all != 100 {
			t.Errorf("%+v leave %d, %d and %d", limits, a, c, all)
		}
	}
	w.refused(w.object(w.ada, "a", 71), compute.CodeForbidden, "storage_quota_exceeded")
	w.refused(w.object(w.ada, "c", 31), compute.CodeForbidden, "storage_quota_exceeded")
	id := compute.ObjectUploadID{UUID: compute.UUID{77}}
	w.must(command.StartObjectUpload{Actor: w.ada, Upload: compute.ObjectUpload{ID: id, Key: "c"}})
	part := compute.ObjectPart{Upload: id, Number: 1, Size: 20, Blob: compute.Hash{1}, Whole: true}
	w.must(command.PutObjectPart{Actor: w.ada, Part: part})
	u, _ := w.view().ObjectUpload(w.org, id)
	if first, second := w.view().ObjectPartSpace(u, 1), w.view().ObjectPartSpace(u, 2); first != 30 || second != 10 {
		t.Errorf("parts may have %d and %d bytes", first, second)
	}
	w.must(command.SetBucketLimits{Actor: w.root, Org: w.org, MaxBytes: 10})
	if a, c := space("a"), space("c"); a != 40 || c > 0 {
		t.Errorf("beyond the limit there is space for %d and %d", a, c)
	}
	w.must(w.object(w.ada, "a", 40))
}

// TestBucketLimits checks that objects beyond the limits of an organization or of a user
// are refused.
func TestBucketLimits(t *testing.T) {
	w := bucketWorld(t)
	limits := command.SetBucketLimits{Actor: w.root, Org: w.org, MaxBytes: 100, MaxObjects: 3}
	w.must(limits)
	w.must(w.object(w.ada, "a", 60))
	w.refused(w.object(w.ada, "b", 50), compute.CodeForbidden, "storage_quota_exceeded")
	w.must(w.object(w.ada, "a", 100))
	w.must(w.object(w.ada, "a", 90))
	w.must(w.object(w.ada, "b", 0+1))
	w.must(w.object(w.ada, "c", 1))
	w.refused(w.object(w.ada, "d", 1), compute.CodeForbidden, "storage_quota_exceeded")
	limits.MaxObjects = 1
	w.must(limits)
	w.must(w.object(w.ada, "c", 1)) // It is there already.
	w.refused(w.object(w.ada, "d", 1), compute.CodeForbidden, "storage_quota_exceeded")
	limits.MaxObjects, limits.MaxBytes, limits.UserMaxBytes = 0, 0, 50
	w.must(limits)
	w.must(w.object(w.ada, "a", 80)) // Less than before is allowed always.
	w.refused(w.object(w.ada, "d", 1), compute.CodeForbidden, "storage_quota_exceeded")
	limits.Actor = w.ada
	w.refused(limits, compute.CodeForbidden, "not_an_operator")
	limits.Actor, limits.MaxBytes = w.root, -1
	w.refused(limits, compute.CodeInvalid, "storage_limit")
}

// TestReplacingBeyondALimitNeedsItsFormat holds that servers of the format before decide alike.
func TestReplacingBeyondALimitNeedsItsFormat(t *testing.T) {
	w := newEmptyWorld(t)
	w.format = format.Newest
	w.fill()
	w.must(command.SetFormat{Term: w.term, Format: 17})
	w.must(command.CreateBucket{Actor: w.ada, Bucket: compute.Bucket{Sealed: []byte("key")}})
	w.must(w.object(w.ada, "a", 1))
	w.must(w.object(w.ada, "b", 1))
	w.must(command.SetBucketLimits{Actor: w.root, Org: w.org, MaxObjects: 1})
	w.refused(w.object(w.ada, "a", 2), compute.CodeForbidden, "storage_quota_exceeded")
	w.must(command.SetFormat{Term: w.term, Format: 18})
	w.must(w.object(w.ada, "a", 2))
}

// TestObjectsEndWithTheirOrganization holds that nobody can read the objects of an
// organization that has ended, and that they go.
func TestObjectsEndWithTheirOrganization(t *testing.T) {
	w := bucketWorld(t)
	w.must(w.object(w.ada, "a", 1))
	id := compute.ObjectUploadID{UUID: w.uuid()}
	w.must(command.StartObjectUpload{Actor: w.ada, Upload: compute.ObjectUpload{ID: id, Key: "b"}})
	w.must(command.PutObjectPart{Actor: w.ada, Part: compute.ObjectPart{Upload: id, Number: 1, Size: 5, Blob: compute.Hash{1}}})
	w.must(command.DeleteOrg{Actor: w.ada, Org: w.org})
	if w.view().Bucket(w.org) != nil {
		t.Error("the key is still there")
	}
	w.must(command.Tick{Term: w.term})
	if got := w.keys(w.org, ""); len(got) > 0 || w.view().ObjectUse(w.org, w.ada.User).Bytes != 0 {
		t.Errorf("left are %q", got)
	}
	blobs := 0
	for range w.view().ObjectBlobs() {
		blobs++
	}
	if blobs > 0 {
		t.Errorf("%d blobs are still live", blobs)
	}
}

// TestObjectsAreSmall measures the memory of an object.
func TestObjectsAreSmall(t *testing.T) {
	w := bucketWorld(t)
	const count, most = 20_000, 300
	heap := func() int {
		var m runtime.MemStats
		for range 3 { // Pools and finalizers of earlier tests keep memory over one collection.
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for i := range count {
		c := w.object(w.ada, fmt.Sprintf("results/%06d/model.bin", i), 4096)
		c.Object.Type = "application/octet-stream"
		w.must(c)
		w.entries = nil
	}
	each := (heap() - before) / count
	runtime.KeepAlive(w)
	if each > most {
		t.Errorf("an object takes %d bytes, want at most %d", each, most)
	} else {
		t.Logf("an object takes %d bytes", each)
	}
}
