package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/s3response"

	"berth/compute"
	"berth/fsm/command"
)

func (b *bench) has(key string) bool {
	_, ok := b.Machine.View().Object(b.Actor.Org, key)
	return ok
}

// TestConditionsOfWrites refuses a write whose conditions do not hold, before its body is
// read.
func TestConditionsOfWrites(t *testing.T) {
	b := newBench(t)
	tag := b.put("there", "first")
	other := `"0123456789abcdef0123456789abcdef"`
	for _, test := range []struct {
		key, match, none, code string
	}{
		{"there", "", other, "NotImplemented"},
		{"there", "", tag, "NotImplemented"},
		{"there", "", "*", "PreconditionFailed"},
		{"there", other, "", "PreconditionFailed"},
		{"missing", other, "", "NoSuchKey"},
		{"missing", "*", "", "NoSuchKey"},
	} {
		in := s3response.PutObjectInput{
			Bucket: b.bucket(), Key: &test.key, IfMatch: orNil(test.match), IfNoneMatch: orNil(test.none),
			Body: iotest.ErrReader(errors.New("the body was read")),
		}
		if _, err := b.PutObject(b.ctx, in); codeOf(err) != test.code {
			t.Errorf("put %+v: %v", test, err)
		}
		parts := b.upload(test.key, "whole")
		complete := &s3.CompleteMultipartUploadInput{
			Bucket: b.bucket(), Key: &test.key, UploadId: parts.upload, IfMatch: in.IfMatch, IfNoneMatch: in.IfNoneMatch,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts.parts},
		}
		if _, _, err := b.CompleteMultipartUpload(b.ctx, complete); codeOf(err) != test.code {
			t.Errorf("complete %+v: %v", test, err)
		}
	}
	for _, good := range []s3response.PutObjectInput{{IfMatch: &tag}, {IfMatch: new("*")}} {
		good.Bucket, good.Key, good.Body = b.bucket(), new("there"), strings.NewReader("first")
		if _, err := b.PutObject(b.ctx, good); err != nil {
			t.Errorf("put %+v: %v", good, err)
		}
	}
	if _, err := b.PutObject(b.ctx, s3response.PutObjectInput{
		Bucket: b.bucket(), Key: new("new"), IfNoneMatch: new("*"), Body: strings.NewReader("x"),
	}); err != nil {
		t.Errorf("a new one: %v", err)
	}
}

// TestConditionsOfCopies copies an object only if what is at the destination is what the client
// expects, also when that changes between the check and the command.
func TestConditionsOfCopies(t *testing.T) {
	b := newBench(t)
	b.put("from", "content")
	tag := b.put("there", "first")
	copied := func(key, name, value string) string {
		ctx := b.ctx
		if name != "" {
			ctx = context.WithValue(ctx, name, value) //nolint:staticcheck // A key of the library.
		}
		_, err := b.CopyObject(ctx, s3response.CopyObjectInput{
			Bucket: b.bucket(), Key: &key, CopySource: new(*b.bucket() + "/from"),
		})
		return codeOf(err)
	}
	for _, test := range []struct{ key, name, value, code string }{
		{"there", sentNoneMatch, "*", "PreconditionFailed"},
		{"there", sentNoneMatch, tag, "NotImplemented"},
		{"there", sentMatch, `"other"`, "PreconditionFailed"},
		{"there", sentMatch, `""`, "PreconditionFailed"},
		{"missing", sentMatch, "*", "NoSuchKey"},
		{"new", sentNoneMatch, "*", ""},
		{"there", sentMatch, tag, ""},
		{"there", sentMatch, "*", ""},
		{"there", "", "", ""},
	} {
		if code := copied(test.key, test.name, test.value); code != test.code {
			t.Errorf("%+v: %q", test, code)
		}
	}
	b.before = func(command.Command) { b.put("late", "meanwhile") }
	if code := copied("late", sentNoneMatch, "*"); code != "PreconditionFailed" {
		t.Errorf("stored meanwhile: %q", code)
	}
}

// parts is an upload with its parts.
type parts struct {
	upload *string
	parts  []types.CompletedPart
}

// upload begins an upload of one part.
func (b *bench) upload(key, text string) parts {
	b.t.Helper()
	made, err := b.CreateMultipartUpload(b.ctx, s3response.CreateMultipartUploadInput{Bucket: b.bucket(), Key: &key})
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := b.UploadPart(b.ctx, &s3.UploadPartInput{
		Bucket: b.bucket(), Key: &key, UploadId: &made.UploadId, PartNumber: new(int32(1)), Body: io.Reader(strings.NewReader(text)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return parts{&made.UploadId, []types.CompletedPart{{ETag: out.ETag, PartNumber: new(int32(1))}}}
}

// TestConditionsOfDeletions deletes an object only as the client knows it, also when it is
// replaced between the check and the command.
func TestConditionsOfDeletions(t *testing.T) {
	b := newBench(t)
	remove := func(key string, match string) string {
		_, err := b.DeleteObject(b.ctx, &s3.DeleteObjectInput{Bucket: b.bucket(), Key: &key, IfMatch: orNil(match)})
		return codeOf(err)
	}
	b.put("a", "first")
	if code := remove("a", "*"); code != "" || b.has("a") {
		t.Errorf("any: %s", code)
	}
	tag := b.put("a", "first")
	if code := remove("a", `"other"`); code != "PreconditionFailed" || !b.has("a") {
		t.Errorf("another one: %s", code)
	}
	b.before = func(command.Command) { b.put("a", "second") }
	if code := remove("a", tag); code != "PreconditionFailed" || !b.has("a") {
		t.Errorf("replaced meanwhile: %q", code)
	}
	first, second := b.put("a", "first"), b.put("b", "second")
	b.put("c", "third")
	out, err := b.DeleteObjects(b.ctx, &s3.DeleteObjectsInput{Bucket: b.bucket(), Delete: &types.Delete{
		Objects: []types.ObjectIdentifier{
			{Key: new("a"), ETag: &first}, {Key: new("b"), ETag: &first}, {Key: new("c")}, {Key: new("none"), ETag: &second},
		},
	}})
	var deleted []string
	for _, d := range out.Deleted {
		deleted = append(deleted, *d.Key)
	}
	if err != nil || !slices.Equal(deleted, []string{"a", "c", "none"}) || len(out.Error) != 1 || *out.Error[0].Key != "b" ||
		*out.Error[0].Code != "PreconditionFailed" || b.has("a") || !b.has("b") || b.has("c") {
		t.Errorf("deleted are %q, not %+v, %v", deleted, out.Error, err)
	}
}

// TestLongKeysAreDeleted deletes as many objects as one request may name, with keys that
// do not fit into one command.
func TestLongKeysAreDeleted(t *testing.T) {
	b := newBench(t)
	var named []types.ObjectIdentifier
	for i := range command.MaxObjectDeletes {
		named = append(named, types.ObjectIdentifier{Key: new(fmt.Sprintf("%0*d", compute.MaxObjectKey, i))})
	}
	first, last := *named[0].Key, *named[len(named)-1].Key
	b.put(first, "first")
	b.put(last, "last")
	out, err := b.DeleteObjects(b.ctx, &s3.DeleteObjectsInput{Bucket: b.bucket(), Delete: &types.Delete{Objects: named}})
	if err != nil || len(out.Deleted) != len(named) || b.has(first) || b.has(last) {
		t.Errorf("%d of %d are deleted: %v", len(out.Deleted), len(named), err)
	}
}

// TestNoBytesBeyondQuotas refuses what the quota leaves no space for: by its length before
// the body is read, or as soon as it has more.
func TestNoBytesBeyondQuotas(t *testing.T) {
	b := newBench(t)
	b.put("a", "12345678")
	p := b.upload("b", "")
	b.Must(command.SetBucketLimits{Actor: command.Actor{Root: true}, Org: b.Actor.Org, MaxBytes: 10})
	before := len(b.blobs)
	unread := func() io.Reader { return iotest.ErrReader(errors.New("the body was read")) }
	for name, test := range map[string]struct {
		key    string
		body   io.Reader
		length *int64
		code   string
	}{
		"by its length":          {"new", unread(), new(int64(3)), "QuotaExceeded"},
		"in the place of others": {"a", unread(), new(int64(11)), "QuotaExceeded"},
		"without a length":       {"new", strings.NewReader("123"), nil, "QuotaExceeded"},
	} {
		in := s3response.PutObjectInput{Bucket: b.bucket(), Key: &test.key, Body: test.body, ContentLength: test.length}
		if _, err := b.PutObject(b.ctx, in); codeOf(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
		if test.key == "a" {
			continue
		}
		_, err := b.UploadPart(b.ctx, &s3.UploadPartInput{
			Bucket: b.bucket(), Key: new("b"), UploadId: p.upload, PartNumber: new(int32(2)), Body: test.body, ContentLength: test.length,
		})
		if test.length != nil && codeOf(err) != test.code {
			t.Errorf("a part, %s: %v", name, err)
		}
	}
	if len(b.blobs) != before {
		t.Errorf("%d blobs became %d", before, len(b.blobs))
	}
	b.put("a", "1234567890")
}
